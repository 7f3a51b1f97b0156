// The dialogs: settings of a conversation, the key, one question, the list of keys.
import { el } from "./dom.js";
import { apiKey, keepApiKey } from "./store.js";
import { parseTools, SAMPLING } from "./tree.js";

const byId = (id) => document.getElementById(id);

// Resolves with the value of the button that closed it; "" for Escape.
function show(dialog) {
  return new Promise((resolve) => {
    dialog.returnValue = "";
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
  });
}

// Enter in a text field presses the first submit button, which is Cancel: press the right one.
for (const [form, button] of [["key-dialog", "use-key"], ["ask-dialog", "ask-ok"], ["settings-dialog", "save-settings"]]) {
  byId(form).addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing && event.target.matches("input:not([type=checkbox])")) {
      event.preventDefault();
      byId(button).click();
    }
  });
}

// ---------------------------------------------------------------- one question

// A text, or null. Without `value` it is a question for yes or no: true or null.
export async function ask({ title, label, value, ok, danger }) {
  byId("ask-title").textContent = title;
  byId("ask-label").textContent = label ?? "";
  byId("ask-field").hidden = value === undefined;
  byId("ask-input").value = value ?? "";
  byId("ask-ok").textContent = ok;
  byId("ask-ok").classList.toggle("danger", danger === true);
  const closed = show(byId("ask-dialog"));
  if (value !== undefined) byId("ask-input").select();
  else byId("ask-ok").focus();
  if ((await closed) !== "ok") return null;
  return value === undefined ? true : byId("ask-input").value;
}

// ---------------------------------------------------------------- the key

let keyBeingAsked = null;

// `refused`: the server did not take the key that it was given. Requests that fail together share one question.
export function askForKey(refused) {
  keyBeingAsked ??= (async () => {
    byId("key-error").hidden = !refused;
    byId("key").value = refused ? apiKey() : "";
    const closed = show(byId("key-dialog"));
    byId("key").focus();
    const answer = await closed;
    const key = byId("key").value.trim();
    byId("key").value = "";
    if (answer !== "ok" || !key) return false;
    keepApiKey(key, byId("keep-key").checked);
    return true;
  })().finally(() => {
    keyBeingAsked = null;
  });
  return keyBeingAsked;
}

// ---------------------------------------------------------------- settings

function drawFixedResults(results) {
  const known = new Map([...byId("fixed-results").querySelectorAll("textarea")].map((area) => [area.dataset.name, area.value]));
  let tools = [];
  try {
    tools = parseTools(byId("tools").value);
  } catch {
    tools = [];
  }
  byId("fixed-results").replaceChildren(...tools.map(({ function: { name } }) => {
    const area = el("textarea", { rows: "1", class: "mono", spellcheck: "false", placeholder: "ask me",
      value: known.get(name) ?? (Object.hasOwn(results, name) ? results[name] : "") });
    area.dataset.name = name;
    return el("label", { class: "field" }, `Result of every call of ${name}`, area);
  }));
}

function settingsFailure(message) {
  byId("settings-error").textContent = message;
  byId("settings-error").hidden = !message;
}

// Writes the fields into the conversation; false with a message where one is wrong.
function takeSettings(conversation) {
  try {
    parseTools(byId("tools").value);
  } catch (error) {
    settingsFailure(error.message);
    byId("tools").focus();
    return false;
  }
  for (const name of SAMPLING) {
    if (!byId(name).checkValidity()) {
      settingsFailure(`${byId(name).labels[0].textContent.trim()}: ${byId(name).validationMessage}`);
      byId("sampling").open = true;
      byId(name).focus();
      return false;
    }
  }
  conversation.system = byId("system").value;
  conversation.tools = byId("tools").value;
  conversation.sampling = Object.fromEntries(SAMPLING.filter((name) => byId(name).value !== "")
    .map((name) => [name, byId(name).valueAsNumber]));
  conversation.results = Object.fromEntries([...byId("fixed-results").querySelectorAll("textarea")]
    .filter((area) => area.value.trim()).map((area) => [area.dataset.name, area.value]));
  return true;
}

// Resolves with "save", "export", "rename", "delete" or "".
export async function editSettings(conversation) {
  const dialog = byId("settings-dialog");
  byId("system").value = conversation.system;
  byId("tools").value = conversation.tools;
  byId("fixed-results").replaceChildren();
  drawFixedResults(conversation.results);
  for (const name of SAMPLING) byId(name).value = conversation.sampling[name] ?? "";
  byId("sampling").open = Object.keys(conversation.sampling).length > 0;
  settingsFailure("");
  byId("tools").oninput = () => drawFixedResults(conversation.results);
  byId("save-settings").onclick = () => {
    if (takeSettings(conversation)) dialog.close("save");
  };
  byId("export-one").onclick = () => dialog.close("export");
  byId("rename").onclick = () => dialog.close("rename");
  byId("delete").onclick = () => dialog.close("delete");
  const result = await show(dialog);
  return result === "cancel" ? "" : result;
}

// ---------------------------------------------------------------- keys

export function showKeys(keys) {
  byId("keys").replaceChildren(...keys.flatMap(([combination, what]) => [
    el("dt", {}, ...combination.split(" ").flatMap((key) => [el("kbd", {}, key), " "])), el("dd", {}, what)]));
  return show(byId("help-dialog"));
}
