// The script of the answer to who may not come in: a tab that has kept the token comes again with it.

import {dropToken, framed, store} from "./session.js";

const here = new URL(location.href);
const token = store.get("token");
if (token && !here.searchParams.has("token")) {
  here.searchParams.set("token", token);
  location.replace(here.href);
} else { // the token was wrong: of a viewer that has ended, for instance
  if (!framed) {
    store.set("token", "");
    dropToken();
  }
  document.querySelector("#notice").hidden = false;
}
