// Which view is shown, whether it is fresh, and in which colours.

import { repeatedly, token, TokenNeeded, NotHere } from "./connection.js";
import { el, named, setText } from "./dom.js";
import { Overview } from "./overview.js";
import { Tenant } from "./tenant.js";

/* global theme */

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const connectionText = document.getElementById("connection-text");
const lost = document.getElementById("lost");

let stop = () => {};
let view = null;
let fresh = null; // when the figures on the page came

let about = {}; // what the view says: version, title, and whether decisions stand still

function told(said) {
  about = said;
  setText(document.getElementById("version"), `G-FORCE ${said.version}`);
}

// #/ or #/tenant/NAME?metric=fpr
function route() {
  const [path, query] = location.hash.slice(1).split("?");
  const [, kind, name] = path.match(/^\/(tenant)\/(.+)$/) ?? [];
  if (kind !== "tenant") return { key: "all", make: () => new Overview(main, told) };
  try {
    const wanted = decodeURIComponent(name);
    return { key: `tenant ${wanted}`, make: () => new Tenant(main, wanted, new URLSearchParams(query), told) };
  } catch {
    return { key: "all", make: () => new Overview(main, told) };
  }
}

let current = null;

function show() {
  const wanted = route();
  if (wanted.key === current) return;
  const moved = current !== null;
  stop();
  view?.close?.();
  current = wanted.key;
  view = wanted.make();
  fresh = null;
  about = {};
  if (!lost.hidden) sayLost();
  if (moved) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  watch();
}

function watch() {
  const shown = view;
  stop = repeatedly((signal) => shown.turn(signal), heard);
}

function heard(error) {
  if (error instanceof TokenNeeded) return askForToken();
  if (error instanceof NotHere) return gone();
  if (!error) fresh = new Date();
  else console.debug(error); // a lost line is told on the page; the console is for what is wrong with the page
  lost.hidden = !error;
  main.classList.toggle("stale", Boolean(error));
  if (error) return sayLost();
  if (about.still) line("still", about.still.word);
  else line("live", "Live");
  document.title = about.title ?? "G-FORCE";
}

function sayLost() {
  line("lost", "Not connected");
  document.title = `✕ Not connected · ${(about.title ?? "G-FORCE").replace("▲ ", "")}`;
  const since = fresh ? `These figures are from ${fresh.toLocaleTimeString("en-GB")}.` : "There are no figures yet.";
  setText(lost, `Connection lost. ${since} Trying again…`);
}

// The dot in the corner and its word.
function line(state, word) {
  connection.dataset.state = state;
  setText(connectionText, word);
}

function gone() {
  line("live", "Live");
  document.title = "Not on this processor · G-FORCE";
  lost.hidden = true;
  main.classList.remove("stale");
  if (main.querySelector(".gone")) return;
  view?.close?.();
  const name = decodeURIComponent(location.hash.slice("#/tenant/".length).split("?")[0]);
  main.replaceChildren(el("section", { class: "notice gone" },
    el("h1", null, "Not on this processor"),
    el("p", null, "There is no tenant ", named(name), " here. Its partition may have moved to another processor, or it has sent nothing yet."),
    el("p", null, el("a", { href: "#/" }, "All tenants of this processor"))));
  stop();
  // Look again now and then: partitions come back.
  const again = setTimeout(() => { current = null; show(); }, 5000);
  stop = () => clearTimeout(again);
}

function askForToken() {
  line("lost", "Token needed");
  document.title = "Token needed · G-FORCE";
  lost.hidden = true;
  main.classList.remove("stale");
  view?.close?.();
  const refused = token.get() !== null;
  const input = el("input", { type: "password", id: "token", autocomplete: "off", required: true, "aria-describedby": "token-help" });
  const form = el("form", { class: "notice token" },
    el("h1", null, "A token is needed"),
    el("p", { id: "token-help", role: refused ? "alert" : null },
      refused ? "That token was not accepted." : "The figures of this processor are protected (http.token). The token is kept until this tab is closed."),
    el("label", { for: "token" }, "Bearer token"), input, el("button", { type: "submit" }, "Show the figures"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    token.set(input.value);
    current = null;
    show();
  });
  main.replaceChildren(form);
  input.focus();
}

const button = document.getElementById("theme");
const words = { auto: ["Auto", "as the system"], light: ["Light", "light"], dark: ["Dark", "dark"] };

function paint() {
  const [word, long] = words[theme.choice()];
  setText(button, word);
  button.setAttribute("aria-label", `Colours: ${long}`);
  view?.repaint?.();
}

button.addEventListener("click", () => theme.next());
document.addEventListener("theme", paint);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address after # says which view this is
  main.focus();
});
document.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", show);
paint();
show();
