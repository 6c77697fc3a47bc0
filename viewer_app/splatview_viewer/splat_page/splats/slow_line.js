// Whether pictures of the viewer come too slowly to move a camera by them.

const SLOW_LATENCY = 150, SLOW_RATE = 4000; // ms; bytes a ms
const MEASURED = 7; // values after which it is known
const LARGE = 48 * 1024; // bytes of a picture that tells the rate

export function makeSlowLine() {
  const latencies = [], rates = []; // the last ones

  function note(values, value) {
    values.push(value);
    if (values.length > MEASURED) values.shift();
  }

  return {
    /** @param {number} ms  From what the user did to its picture. */
    noteLatency: (ms) => note(latencies, ms),
    /** @param {number} bytes  Of a picture. @param {number} ms  In which they came. */
    noteRate(bytes, ms) {
      if (bytes >= LARGE && ms > 0) note(rates, bytes / ms);
    },
    get isSlow() {
      return median(latencies) > SLOW_LATENCY || median(rates) < SLOW_RATE;
    },
  };
}

/** NaN until enough was measured. */
function median(values) {
  if (values.length < MEASURED) return NaN;
  return [...values].sort((a, b) => a - b)[MEASURED >> 1];
}
