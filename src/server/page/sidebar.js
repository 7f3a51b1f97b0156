// The list of conversations and the search in it.
import { el, iconButton, plural } from "./dom.js";
import { announce } from "./announce.js";
import { search } from "./search.js";

const byId = (id) => document.getElementById(id);
const list = byId("conversations");
const DAY = 86400000;
const UNTITLED = "New conversation";

function dayName(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - DAY) return "Yesterday";
  if (time >= midnight - 7 * DAY) return "The last days";
  return new Intl.DateTimeFormat("en", { month: "long", year: "numeric" }).format(time);
}

// ---------------------------------------------------------------- rows

function row({ conversation, node, excerpt }, { current, isRunning, actions }) {
  const title = conversation.title || UNTITLED;
  const talk = el("button", {
    type: "button", class: "talk", title, "aria-current": conversation === current && "page",
    onclick: () => actions.open(conversation, node),
    onkeydown: (event) => {
      if (event.key === "F2") actions.rename(conversation);
      else if (event.key === "Delete") actions.remove(conversation);
    },
  }, el("span", { class: "name" }, el("span", { class: "name-text", dir: "auto" }, title),
    isRunning(conversation) && el("span", { class: "busy", role: "img", "aria-label": "is being answered" })),
  excerpt && el("span", { class: "excerpt", dir: "auto" }, excerpt.before, el("mark", {}, excerpt.match), excerpt.after));
  talk.dataset.id = conversation.id;
  return el("li", { class: "conversation" }, talk, el("span", { class: "row-actions" },
    iconButton("edit", `Rename “${title}”`, () => actions.rename(conversation)),
    iconButton("trash", `Delete “${title}”`, () => actions.remove(conversation))));
}

// `actions`: open(conversation, node), rename(conversation), remove(conversation)
export function drawSidebar(conversations, current, isRunning, actions) {
  const newest = [...conversations].sort((a, b) => b.updated - a.updated);
  const question = byId("search").value.trim();
  const hits = question ? search(newest, question) : newest.map((conversation) => ({ conversation }));
  byId("search-box").hidden = newest.length < 2 && !question && document.activeElement !== byId("search");
  const rows = [];
  let day = "";
  for (const hit of hits) {
    const name = dayName(hit.conversation.updated);
    if (name !== day && !question) rows.push(el("li", { class: "day" }, name));
    day = name;
    rows.push(row(hit, { current, isRunning, actions }));
  }
  if (question && !hits.length) rows.push(el("li", { class: "day" }, "Nothing found"));
  const focused = list.contains(document.activeElement) && document.activeElement.closest("li").querySelector(".talk")?.dataset.id;
  list.replaceChildren(...rows);
  if (focused) (talks().find((one) => one.dataset.id === focused) ?? talks()[0] ?? byId("new")).focus();
  return hits.length;
}

const talks = () => [...list.querySelectorAll(".talk")];

// ---------------------------------------------------------------- search and arrows

let searching = null;

// `draw` draws the list anew and returns how many it shows.
export function listenToSidebar(draw) {
  byId("search").addEventListener("input", () => {
    clearTimeout(searching);
    searching = setTimeout(() => {
      const found = draw();
      if (byId("search").value.trim()) announce(`${plural(found, "conversation")} found`);
    }, 120);
  });
  byId("sidebar").addEventListener("keydown", (event) => {
    if (event.isComposing || event.altKey) return;
    const field = byId("search");
    if (event.key === "Escape" && field.value && event.target === field) {
      event.stopPropagation();
      event.preventDefault();
      endSearch();
      draw();
    } else if (event.key === "Enter" && event.target === field) {
      draw();
      talks()[0]?.click();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && (event.target === field || list.contains(event.target))) {
      const all = talks();
      const at = all.indexOf(event.target.closest("li")?.querySelector(".talk"));
      const next = event.key === "ArrowDown" ? at + 1 : at - 1;
      event.preventDefault();
      (next < 0 ? field : all[next])?.focus();
    }
  });
}

export function endSearch() {
  byId("search").value = "";
}

// ---------------------------------------------------------------- shown or not

const narrow = matchMedia("(max-width: 48rem)");

export const sidebarIsOver = () => narrow.matches;
export const sidebarShown = () => !document.body.classList.contains("no-sidebar");

export function showSidebar(shown, focus = true) {
  document.body.classList.toggle("no-sidebar", !shown);
  const overlay = shown && narrow.matches;
  byId("column").inert = overlay;
  if (!focus) return;
  if (shown) byId("close-sidebar").focus();
  else byId("open-sidebar").focus();
}

export function showSearch() {
  if (!sidebarShown()) showSidebar(true, false);
  byId("search-box").hidden = false;
  byId("search").select();
}

narrow.addEventListener("change", () => showSidebar(!narrow.matches, false));
