// Files between the page and the viewer: those that are dropped or pasted here are sent to it, one after the other,
// and open there as if they had been dropped on its window; those that it wrote for this user are downloaded.

const MOST = 32; // files of one drop
const HELD = 700; // ms within which a browser says again that files are held over the page

/**
 * @param {{el: Record<string, any>, address: (path: string, scheme: string) => URL["href"], credentials:
 *   Record<string, string>, say: (words: string, ms?: number) => void, welcome: () => {key: string, most: number} | null, leave: () => void}} page
 *   What the page lends: its elements by their ids, its addresses, the headers of its requests and its words, what the
 *   viewer said at last, and a way to give the focus back.
 */
export function makeFiles({el, address, credentials, say, welcome, leave}) {
  const waiting = [];
  let request = null, running = false, stopped = false, held = 0;

  /** @param {Iterable<File>} files  Wait for those that are on their way. */
  function send(files) {
    const all = [...files];
    if (all.length > MOST) say(`Only the first ${MOST} files are opened`, 4000);
    waiting.push(...all.slice(0, MOST));
    if (!running) run();
  }

  async function run() {
    const faults = [];
    running = true;
    stopped = false;
    while (waiting.length && !stopped) {
      const fault = await sendOne(waiting.shift());
      if (fault) faults.push(fault);
    }
    waiting.length = 0;
    running = false;
    if (el.sending.contains(document.activeElement)) leave();
    el.sending.hidden = true;
    if (stopped) say("Not sent");
    else if (faults.length) say(faults.slice(0, 3).join("\n"), 8000);
  }

  /** @param {File} file @returns {Promise<string>}  Why the viewer does not have it, "" if it has. */
  async function sendOne(file) {
    const viewer = welcome();
    if (!viewer) return `${file.name} cannot be opened: the viewer is gone`;
    if (file.size > viewer.most) {
      return `${file.name} has ${inWords(file.size)}; ${inWords(viewer.most)} is the most that a page can send. `
        + "Open it where the viewer runs";
    }
    show(file, 0);
    const {status, words} = await post(file, viewer.key);
    if (status === 200 || stopped) return "";
    return words || `${file.name} did not come through: the connection broke off`;
  }

  /** @returns {Promise<{status: number, words: string}>}  Status 0: no answer. */
  function post(file, key) {
    const url = new URL(address("upload", "http"));
    url.searchParams.set("name", file.name);
    return new Promise((done) => {
      request = new XMLHttpRequest(); // fetch does not tell how far an upload is
      request.open("POST", url.href);
      for (const [name, value] of Object.entries(credentials)) request.setRequestHeader(name, value);
      request.setRequestHeader("X-Splatview-Page", key);
      request.setRequestHeader("Content-Type", "application/octet-stream");
      request.upload.onprogress = (e) => show(file, e.loaded / Math.max(file.size, 1));
      request.onloadend = () => {
        const {status, responseText} = request;
        request = null;
        done({status, words: responseText.trim().slice(0, 400)});
      };
      request.send(file);
    });
  }

  function show(file, share) {
    const more = waiting.length ? `, ${waiting.length} more` : "";
    el.sending.hidden = false;
    el.sendwords.textContent = `Sending ${file.name}, ${inWords(file.size)}${more}`;
    el.sendbar.value = share;
  }

  function stop() {
    stopped = true;
    waiting.length = 0;
    if (request) request.abort();
  }

  /** @param {DataTransfer | null} data  What was let go over the page, or pasted. Whether there are files in it. */
  function take(data) {
    if (!data) return false;
    const items = [...data.items].filter((item) => item.kind === "file");
    const folders = items.filter((item) => item.webkitGetAsEntry && item.webkitGetAsEntry()?.isDirectory);
    if (folders.length) say("Folders cannot be sent: drop the files in them, or open the folder where the viewer runs", 8000);
    const files = items.filter((item) => !folders.includes(item)).map((item) => item.getAsFile()).filter(Boolean);
    if (files.length) send(files);
    return items.length > 0;
  }

  /** Have the user choose files of their machine, which are sent. */
  function choose() {
    const field = document.createElement("input");
    field.type = "file";
    field.multiple = true;
    field.addEventListener("change", () => { if (field.files) send(field.files); });
    field.click();
  }

  const hasFiles = (e) => !!e.dataTransfer && e.dataTransfer.types.includes("Files");

  function over(e) {
    e.preventDefault(); // a dropped file would replace the page
    const welcomed = hasFiles(e) && !!welcome();
    if (e.dataTransfer) e.dataTransfer.dropEffect = welcomed ? "copy" : "none";
    el.drop.hidden = !welcomed;
    clearTimeout(held);
    held = setTimeout(away, HELD); // a drag that ends elsewhere sends no event
  }

  function away() {
    clearTimeout(held);
    el.drop.hidden = true;
  }

  function drop(e) {
    e.preventDefault();
    away();
    take(e.dataTransfer);
  }

  /**
   * Not by its address alone: that would need the token in it, and browsers write addresses into their list of
   * downloads and into the attributes of files.
   * @param {{name: string, key: string}} offer  A file that waits to be fetched.
   */
  async function fetchOffer({name, key}) {
    const url = new URL(address("download", "http"));
    url.searchParams.set("key", key);
    say(`Downloading ${name}`, 2500);
    try {
      const answer = await fetch(url.href, {headers: credentials});
      if (!answer.ok) return say((await answer.text()).trim().slice(0, 400), 8000);
      save(await answer.blob(), name);
    } catch {
      say(`${name} did not come through: the connection broke off`, 8000);
    }
  }

  addEventListener("dragenter", over);
  addEventListener("dragover", over);
  addEventListener("drop", drop);
  addEventListener("dragleave", (e) => { if (!e.relatedTarget) away(); });
  el.stopsending.addEventListener("click", stop);
  return {send, take, choose, fetchOffer};
}

/** Have the browser keep a file. @param {Blob} blob @param {string} name */
export function save(blob, name) {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
}

function inWords(size) {
  for (const [unit, words] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (size >= unit) return `${Number((size / unit).toPrecision(3))} ${words}`;
  }
  return `${size} bytes`;
}
