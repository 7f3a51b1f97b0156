// The list of conversations.
import { el } from "./dom.js";

const list = document.getElementById("conversations");
const DAY = 86400000;

function dayName(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - DAY) return "Yesterday";
  if (time >= midnight - 7 * DAY) return "The last days";
  return new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric" }).format(time);
}

export function drawSidebar(conversations, current, isRunning, open) {
  const newest = [...conversations].sort((a, b) => b.updated - a.updated);
  const rows = [];
  let day = "";
  for (const conversation of newest) {
    const name = dayName(conversation.updated);
    if (name !== day) rows.push(el("li", { class: "day" }, name));
    day = name;
    const title = conversation.title || "New conversation";
    rows.push(el("li", {}, el("button", {
      type: "button", title, "aria-current": conversation === current && "page", onclick: () => open(conversation),
    }, el("span", { dir: "auto" }, title), isRunning(conversation) && el("span", { class: "busy", role: "img", "aria-label": "is being answered" }))));
  }
  const focused = list.contains(document.activeElement) ? [...list.querySelectorAll("button")].indexOf(document.activeElement) : -1;
  list.replaceChildren(...rows);
  if (focused >= 0) list.querySelectorAll("button")[focused]?.focus();
}

// ---------------------------------------------------------------- shown or not

const narrow = matchMedia("(max-width: 48rem)");

export const sidebarIsOver = () => narrow.matches;
export const sidebarShown = () => !document.body.classList.contains("no-sidebar");

export function showSidebar(shown, focus = true) {
  document.body.classList.toggle("no-sidebar", !shown);
  const overlay = shown && narrow.matches;
  document.getElementById("column").inert = overlay;
  if (!focus) return;
  if (shown) document.getElementById("close-sidebar").focus();
  else document.getElementById("open-sidebar").focus();
}

narrow.addEventListener("change", () => showSidebar(!narrow.matches, false));
