// What PyTorch's memory_viz does before it draws: node memory_viz.cjs MemoryViz.js SNAPSHOT.pickle
const fs = require("fs");

const [source, file] = process.argv.slice(2);
const text = fs.readFileSync(source, "utf8");
const page = text.indexOf("\nconst kinds = ");  // from there on it builds its page
const code = (page < 0 ? text : text.slice(0, page)).replace(/^import .*$/gm, "");
const names = "{unpickle, annotate_snapshot, process_alloc_data}";
const viz = new Function(`${code}\nreturn ${names};`)();

const begin = performance.now();
const data = fs.readFileSync(file);
const snapshot = viz.unpickle(data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength));
const unpickled = performance.now();
viz.annotate_snapshot(snapshot);
const plot = viz.process_alloc_data(snapshot, 0, false, 15000);
let points = 0;
for (const band of plot.allocations_over_time) points += 2 * band.timesteps.length;
console.log(JSON.stringify({
  seconds: (performance.now() - begin) / 1e3, unpickle: (unpickled - begin) / 1e3,
  bands: plot.allocations_over_time.length, points,
}));
