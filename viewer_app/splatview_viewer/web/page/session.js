// What a tab keeps for itself, the viewer's token before all.

/** A site may show several viewers, each under a path of its own: none gets the token of another. */
const prefix = `splatview.${location.pathname.replace(/[^/]*$/, "")}.`;

/** The page's own keepings; a frame inside a foreign page may have none. */
export const store = {
  get: (key) => { try { return sessionStorage.getItem(prefix + key) || ""; } catch { return ""; } },
  set: (key, value) => { try { sessionStorage.setItem(prefix + key, value); } catch { /* lasts one load */ } },
};

export const framed = window.top !== window;

/**
 * The token that this page was opened with, "" for none. It moves from the address bar, where it would be seen, shared
 * and kept as a bookmark, to the tab's session storage, so that a reload has it.
 *
 * Not into a cookie: browsers send a host's cookies to all of its ports, and the servers at the other ports of
 * 127.0.0.1 can be other users'. A cookie that does no harm elsewhere (SameSite=Strict) would also be missing in a
 * notebook's frame, and in a tab that a link of the notebook opens. Session storage belongs to one port and one tab.
 *
 * A frame keeps its address: it is not seen, it is needed for a reload, and storage may be blocked there.
 */
export function takeToken() {
  const here = new URL(location.href);
  // Behind #, it is in no request, and so in no log of a proxy.
  const behind = /^#token=(.*)$/.exec(here.hash);
  const given = behind ? behind[1] : here.searchParams.get("token");
  if (given === null) return store.get("token");
  const token = /^[A-Za-z0-9_-]{1,128}$/.test(given) ? given : "";
  if (framed) return token;
  store.set("token", token);
  if (store.get("token") === token) {
    here.searchParams.delete("token");
    if (behind) here.hash = "";
    // Relative: a name and password for a proxy's login are in the page's address, but not in what scripts see of it.
    const file = here.pathname.replace(/^.*\//, "");
    history.replaceState(history.state, "", `./${file}${here.search}${here.hash}`);
  }
  return token;
}

// Browsers load no page anew where only what is behind # is another.
addEventListener("hashchange", () => { if (/^#token=/.test(location.hash)) location.reload(); });
