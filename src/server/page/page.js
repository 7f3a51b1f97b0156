// The page: joins conversations, turns and the screen.
import { el, count, plural, rate } from "./dom.js";
import { announce, Speaker } from "./announce.js";
import { countTokens, firstModel, onMissingKey } from "./api.js";
import { Chat } from "./chat.js";
import { ask, askForKey, editSettings, showKeys } from "./dialogs.js";
import { drawSidebar, endSearch, listenToSidebar, showSearch, showSidebar, sidebarIsOver, sidebarShown } from "./sidebar.js";
import { draft, keepDraft, keepSetting, setting, Store } from "./store.js";
import { add, exportFile, EFFORTS, fork, importFile, merge, newConversation, nodeOf, parseTools, path, select } from "./tree.js";
import { MessageView } from "./view.js";

const byId = (id) => document.getElementById(id);
const store = new Store(changedElsewhere);
const conversations = new Map();
const views = new Map(); // node id → MessageView of the path on the screen
let current = newConversation();
let model = null; // as /v1/models has it
let stick = true; // the screen follows the answer

const chat = new Chat({ model: () => model?.id ?? "gpt-oss", changed });

// ---------------------------------------------------------------- keeping

const saving = new Map(); // conversation id → timer
const removed = new Set(); // ids: what still runs of them is not kept

async function save(conversation) {
  clearTimeout(saving.get(conversation.id));
  saving.delete(conversation.id);
  if (removed.has(conversation.id)) return;
  conversations.set(conversation.id, conversation);
  try {
    await store.put(conversation);
  } catch (error) {
    notice(`The browser does not keep this conversation: ${error.message}`);
  }
}

// While an answer runs, now and then is enough.
function saveSoon(conversation) {
  if (!saving.has(conversation.id)) saving.set(conversation.id, setTimeout(() => save(conversation), 2000));
}

function forget(conversation) {
  removed.add(conversation.id);
  chat.stop(conversation);
  conversations.delete(conversation.id);
  if (conversation === current) fresh();
  else drawList();
}

// Another tab of the page has kept or removed one.
async function changedElsewhere(id, isRemoved) {
  const ours = conversations.get(id);
  if (isRemoved) {
    if (ours) forget(ours);
    return;
  }
  const theirs = await store.get(id);
  if (theirs && removed.has(id)) await store.remove(id); // it was kept while this tab removed it
  if (!theirs || removed.has(id)) return;
  if (!ours) conversations.set(id, theirs);
  else if (merge(ours, theirs, chat.running.get(id)?.node)) save(ours); // both kept it at the same time
  const writing = byId("messages").querySelector(".edit") ||
    [...document.querySelectorAll(".call-form textarea")].some((field) => field.value);
  if (ours === current && !writing) draw();
  else drawList();
}

let noticeTimer = null;

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
  clearTimeout(noticeTimer);
  if (text) noticeTimer = setTimeout(() => notice(""), 12000);
}

// ---------------------------------------------------------------- drawing

const contextSize = () => model?.context_length ?? model?.max_model_len ?? model?.meta?.n_ctx ?? null;

function drawContext() {
  const used = path(current).findLast((node) => node.stats?.total)?.stats.total;
  const size = contextSize();
  byId("context").hidden = !used || !size;
  if (!used || !size) return;
  byId("context-text").replaceChildren(`${count(used)} of ${count(size)}`, el("span", { class: "wide" }, " tokens"));
  byId("context").title = `${plural(used, "token")} of a context of ${count(size)} in use`;
  byId("context").setAttribute("aria-valuenow", used);
  byId("context").setAttribute("aria-valuemax", size);
  byId("context").setAttribute("aria-valuetext", byId("context").title);
  byId("context-fill").style.width = `${Math.min(100, 100 * used / size)}%`;
  byId("context").classList.toggle("nearly-full", used > 0.9 * size);
}

function drawHead() {
  byId("title").textContent = current.title || "New conversation";
  document.title = current.title ? `${current.title} · gossamer` : "gossamer";
  for (const input of document.querySelectorAll("#effort input")) input.checked = input.value === current.effort;
  let tools = [];
  try {
    tools = parseTools(current.tools);
  } catch {
    tools = [];
  }
  byId("tools-badge").hidden = !tools.length;
  byId("tools-badge").textContent = plural(tools.length, "tool");
  drawContext();
  drawComposer();
}

function drawComposer() {
  const running = chat.isRunning(current);
  byId("stop").hidden = !running;
  byId("send").hidden = running;
  byId("send").disabled = !byId("message").value.trim();
  const progress = running && chat.progress(current);
  if (running) byId("live").textContent = !progress ? "" : `${count(progress.pieces)} tok${progress.rate ? ` · ${rate(progress.rate)}` : ""}`;
  else if (byId("live").dataset.draft !== "yes") byId("live").textContent = "";
}

function drawList() {
  return drawSidebar(conversations.values(), current, (one) => chat.isRunning(one), { open: openAt, rename, remove });
}

const resultsOf = (nodes) => new Map(nodes.filter((node) => node.role === "tool").map((node) => [node.callId, node]));

function actionsOf(conversation) {
  return {
    regenerate: (node) => turn(conversation, node.parent),
    select: (id) => {
      select(conversation, id);
      save(conversation);
      draw();
      views.get(id)?.root.focus();
    },
    fork: (node) => {
      const copy = fork(conversation, node);
      save(copy);
      open(copy);
      announce("A new conversation goes on from here");
    },
    edit: (node, text) => edit(conversation, node, text),
    redraw: (id) => {
      views.delete(id);
      draw();
      views.get(id)?.root.focus();
    },
    answerCall: (call, text) => {
      const node = path(conversation).findLast((one) => one.calls?.includes(call));
      stick = true;
      chat.resolve(conversation, node, call, text);
    },
    simulate: async (call) => {
      try {
        return await chat.simulate(conversation, call);
      } catch (error) {
        notice(error.message);
        return null;
      }
    },
  };
}

const AT_ONCE = 24; // messages at the end that are drawn before the page is shown; those above follow
const SLICE = 12; // milliseconds of drawing between two frames

let later = null; // timer of what is still to be drawn

// Brings the children of `parent` to `wanted`. What stays is not touched: a long conversation is not laid out anew.
function place(parent, wanted) {
  const stay = new Set(wanted);
  for (const child of [...parent.children]) {
    if (!stay.has(child)) child.remove();
  }
  let at = parent.firstChild;
  for (const child of wanted) {
    if (at === child) at = at.nextSibling;
    else parent.insertBefore(child, at);
  }
}

function drawLater(rest, results) {
  clearTimeout(later);
  if (!rest.length) return;
  later = setTimeout(() => {
    const until = performance.now() + SLICE;
    while (rest.length && performance.now() < until) rest.pop().update(false, results);
    follow();
    drawLater(rest, results);
  });
}

// The whole conversation. Views of messages that stay are kept, so that open reasoning stays open.
function draw() {
  const nodes = path(current);
  const results = resultsOf(nodes);
  const actions = actionsOf(current);
  const shown = nodes.filter((node) => node.role !== "tool");
  const old = new Map(views);
  views.clear();
  for (const node of shown) {
    const kept = old.get(node.id);
    views.set(node.id, kept?.node === node ? kept : new MessageView(current, node, actions));
  }
  const all = [...views.values()];
  for (const view of all.slice(-AT_ONCE)) view.update(chat.isRunning(current, view.node), results);
  place(byId("messages"), all.map((view) => view.root));
  drawHead();
  drawList();
  follow();
  drawLater(all.slice(0, -AT_ONCE), results);
}

function open(conversation) {
  current = conversation;
  keepSetting("last", conversation.id);
  stick = true;
  views.clear();
  draw();
  if (sidebarIsOver() && sidebarShown()) showSidebar(false, false);
  if (!sidebarIsOver()) byId("message").focus();
}

// A conversation that was found by what one of its messages says: that message is shown, whatever version it stands in.
function openAt(conversation, node) {
  if (node && !path(conversation).includes(node)) select(conversation, node.id);
  let shown = node;
  while (shown?.role === "tool") shown = nodeOf(conversation, shown.parent);
  open(conversation);
  const view = shown && views.get(shown.id);
  if (!view) return;
  view.update(chat.isRunning(current, shown), resultsOf(path(current)));
  stick = false;
  view.root.scrollIntoView({ block: "center" });
  view.root.focus({ preventScroll: true });
}

// ---------------------------------------------------------------- following the answer

function follow() {
  const scroll = byId("scroll");
  if (stick) scroll.scrollTop = scroll.scrollHeight;
  byId("latest").hidden = stick || scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 200;
}

byId("scroll").addEventListener("scroll", () => {
  const scroll = byId("scroll");
  stick = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
  byId("latest").hidden = stick || scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 200;
}, { passive: true });

byId("latest").addEventListener("click", () => {
  stick = true;
  follow();
});

let frame = null; // timer of the next drawing of the running answer
let cost = 0; // milliseconds that the last one took: a huge table leaves three times as much for everything else
const speakers = new WeakMap();

function changed(conversation, node, what) {
  if (what === "begun") speakers.set(node, new Speaker());
  if (what === "ended" || what === "result") save(conversation);
  else saveSoon(conversation);
  if (conversation !== current) {
    if (what !== "more") drawList();
    return;
  }
  if (what !== "more") {
    draw();
    if (what === "ended") speakers.get(node)?.end(node);
    if (what !== "begun") byId("messages").querySelector(".call-form textarea")?.focus();
    return;
  }
  frame ??= setTimeout(() => requestAnimationFrame(drawMore), 3 * cost);
}

function drawMore() {
  frame = null;
  const run = chat.running.get(current.id);
  if (!run) return;
  const begin = performance.now();
  views.get(run.node.id)?.update(true, new Map());
  speakers.get(run.node)?.more(run.node);
  drawComposer();
  follow();
  cost = performance.now() - begin;
}

// ---------------------------------------------------------------- turns

async function turn(conversation, parent) {
  stick = true;
  await chat.stop(conversation);
  chat.answer(conversation, parent);
}

// Calls that still wait are told so, since every call needs a result.
function closeCalls(conversation) {
  const last = path(conversation).findLast((node) => node.role === "assistant");
  const answered = new Set(path(conversation).filter((node) => node.role === "tool").map((node) => node.callId));
  for (const call of last?.calls ?? []) {
    if (!answered.has(call.id)) chat.addResult(conversation, conversation.leaf, call, "The person gave no result.");
  }
}

function send() {
  const text = byId("message").value;
  if (!text.trim() || chat.isRunning(current)) return;
  closeCalls(current);
  const node = add(current, current.leaf, { role: "user", content: text.trim() });
  byId("message").value = "";
  keepDraft("");
  grow();
  countDraft();
  save(current);
  turn(current, node.id);
}

function edit(conversation, node, text) {
  views.delete(node.id);
  if (text === node.content || !text.trim()) {
    draw();
    return;
  }
  chat.stop(conversation);
  const { role, reasoning } = node;
  const fresh = add(conversation, node.parent, { role, content: text.trim(), reasoning: role === "assistant" ? reasoning : undefined });
  save(conversation);
  if (role === "user") turn(conversation, fresh.id);
  else draw();
}

// ---------------------------------------------------------------- composer

function grow() {
  const field = byId("message");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

let counting = null;

function countDraft() {
  counting?.abort();
  const text = byId("message").value;
  byId("live").dataset.draft = "";
  drawComposer();
  if (!text.trim()) return;
  counting = new AbortController();
  const { signal } = counting;
  setTimeout(async () => {
    if (signal.aborted) return;
    const tokens = await countTokens(text, signal);
    if (signal.aborted || tokens === null || chat.isRunning(current)) return;
    byId("live").dataset.draft = "yes";
    byId("live").textContent = plural(tokens, "token");
  }, 400);
}

byId("message").addEventListener("input", () => {
  keepDraft(byId("message").value);
  grow();
  countDraft();
});

byId("message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});

byId("stop").addEventListener("click", () => chat.stop(current));

function setEffort(effort) {
  current.effort = effort;
  keepSetting("effort", effort);
  if (conversations.has(current.id)) save(current);
  drawHead();
}

byId("effort").addEventListener("change", (event) => setEffort(event.target.value));

// ---------------------------------------------------------------- conversations

function fresh() {
  endSearch();
  const effort = setting("effort", "medium");
  open(newConversation({ effort: EFFORTS.includes(effort) ? effort : "medium" }));
  byId("message").focus();
}

async function remove(conversation) {
  const name = conversation.title || "this conversation";
  if (!(await ask({ title: `Delete “${name}”?`, ok: "Delete", danger: true }))) return;
  forget(conversation);
  try {
    await store.remove(conversation.id);
  } catch (error) {
    notice(`The browser still keeps this conversation: ${error.message}`);
  }
}

async function rename(conversation) {
  const title = await ask({ title: "Rename", label: "Title", value: conversation.title, ok: "Rename" });
  if (title === null) return;
  conversation.title = title.trim().slice(0, 200);
  save(conversation);
  drawHead();
  drawList();
}

async function settings() {
  const conversation = current; // another tab may remove it meanwhile
  const what = await editSettings(conversation);
  if (what === "save") save(conversation);
  if (what === "export") download([conversation], conversation.title || "conversation");
  if (what === "rename") await rename(conversation);
  if (what === "delete") await remove(conversation);
  drawHead();
  drawList();
}

function download(list, name) {
  const address = URL.createObjectURL(new Blob([exportFile(list)], { type: "application/json" }));
  const file = `${name.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "conversations"}.json`;
  el("a", { href: address, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

async function importFiles(files) {
  let last = null;
  for (const file of files) {
    try {
      for (const conversation of importFile(await file.text())) {
        await save(conversation);
        last = conversation;
      }
    } catch (error) {
      notice(`${file.name}: ${error.message}`);
    }
  }
  if (last) open(last);
  drawList();
}

byId("import").addEventListener("click", () => byId("import-file").click());
byId("import-file").addEventListener("change", async (event) => {
  await importFiles([...event.target.files]);
  event.target.value = "";
});
byId("export").addEventListener("click", () => download([...conversations.values()], "gossamer-conversations"));
byId("new").addEventListener("click", fresh);
listenToSidebar(drawList);
byId("settings").addEventListener("click", settings);
byId("tools-badge").addEventListener("click", settings);

// ---------------------------------------------------------------- theme, sidebar, keys

const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  keepSetting("theme", theme === "auto" ? "" : theme);
  byId("theme").querySelector("use").setAttribute("href", `#i-${theme}`);
  const label = theme === "auto" ? "Theme: as the system" : `Theme: ${theme}`;
  byId("theme").setAttribute("aria-label", label);
  byId("theme").title = label;
}

const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(setting("theme", "auto")) + 1) % THEMES.length]);

byId("theme").addEventListener("click", nextTheme);
byId("open-sidebar").addEventListener("click", () => showSidebar(true));
byId("close-sidebar").addEventListener("click", () => showSidebar(false));
byId("shade").addEventListener("click", () => showSidebar(false));

const KEYS = [
  ["Enter", "send"], ["Shift Enter", "a new line"], ["Esc", "stop the answer"], ["/", "to the message field"],
  ["Alt ↑", "to the message above"], ["Alt ↓", "to the message below"], ["Alt R", "answer anew"], ["Alt E", "edit your last message"],
  ["Alt O", "open or fold the last reasoning"], ["Alt 1 2 3", "effort low, medium, high"], ["Alt N", "new conversation"], ["Alt K", "search the conversations"],
  ["Alt B", "conversations"], ["Alt S", "settings"], ["Alt T", "theme"], ["Alt H", "this list"],
];

function step(direction) {
  const all = [...byId("messages").children];
  if (!all.length) return;
  const at = all.findIndex((one) => one.contains(document.activeElement));
  const next = at < 0 ? all.at(direction < 0 ? -1 : 0) : all[at + direction];
  if (next) next.focus();
  else byId("message").focus();
}

const lastView = (role) => [...views.values()].findLast((view) => view.node.role === role);

const ALT = {
  KeyN: fresh, KeyK: showSearch, KeyS: settings, KeyT: nextTheme, KeyH: () => showKeys(KEYS),
  KeyB: () => showSidebar(!sidebarShown()),
  KeyR: () => lastView("assistant") && !chat.isRunning(current) && turn(current, lastView("assistant").node.parent),
  KeyE: () => lastView("user")?.edit(),
  KeyO: () => {
    const details = lastView("assistant")?.reasoning;
    if (details) details.open = !details.open;
  },
  Digit1: () => setEffort("low"), Digit2: () => setEffort("medium"), Digit3: () => setEffort("high"),
  ArrowUp: () => step(-1), ArrowDown: () => step(1),
};

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("textarea, input:not([type=radio])");
  if (event.altKey && !event.ctrlKey && !event.metaKey && Object.hasOwn(ALT, event.code)) {
    event.preventDefault();
    ALT[event.code]();
  } else if (event.key === "Escape" && chat.isRunning(current)) {
    chat.stop(current);
  } else if (event.key === "Escape" && sidebarIsOver() && sidebarShown()) {
    showSidebar(false);
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && event.key === "/") {
    event.preventDefault();
    byId("message").focus();
  } else if (!typing && event.key === "?") {
    event.preventDefault();
    showKeys(KEYS);
  }
});

byId("help").addEventListener("click", () => showKeys(KEYS));

// ---------------------------------------------------------------- beginning

async function findModel() {
  try {
    model = await firstModel();
  } catch (error) {
    const away = { 0: "The server cannot be reached. This page tries again.", 503: "The model is being loaded…" }[error.status];
    if (away) setTimeout(findModel, 2000);
    else notice(error.message);
    byId("empty-model").textContent = away ?? "";
    return;
  }
  const size = contextSize();
  byId("empty-model").textContent = model ? `${model.id}${size ? ` · context of ${plural(size, "token")}` : ""}` : "";
  drawHead();
}

async function begin() {
  onMissingKey(askForKey);
  setTheme(THEMES.includes(setting("theme", "auto")) ? setting("theme", "auto") : "auto");
  showSidebar(!sidebarIsOver(), false);
  if (!(await store.open())) notice("This browser keeps nothing: conversations are gone when the page closes.");
  for (const conversation of await store.all()) conversations.set(conversation.id, conversation);
  const last = conversations.get(setting("last"));
  if (current.leaf !== "root") { // a message was sent before the browser's database was there
    await save(current);
    open(current);
  } else if (last) open(last);
  else fresh();
  if (draft() && !byId("message").value) {
    byId("message").value = draft();
    grow();
    drawComposer();
  }
  findModel();
}

begin();
