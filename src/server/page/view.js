// Messages on the screen. A view knows its node and calls `actions` for everything that changes the conversation.
import { el, icon, iconButton, copyButton, count, plural, seconds, rate } from "./dom.js";
import { renderMarkdown } from "./markdown.js";
import { siblings } from "./tree.js";

const NAMES = { user: "You", assistant: "Answer" };

// JSON in a readable form; text that is none stays as it is.
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function statsText(stats) {
  if (!stats) return "";
  const parts = [];
  if (stats.output) parts.push(plural(stats.output, "token"));
  if (stats.rate) parts.push(rate(stats.rate));
  if (stats.first !== undefined) parts.push(`first after ${seconds(stats.first)}`);
  if (stats.input) parts.push(`read ${count(stats.input - (stats.cached ?? 0))}${stats.cached ? `, ${count(stats.cached)} reused` : ""}`);
  return parts.join(" · ");
}

function reasoningLabel(node, running) {
  if (running && !node.content && !node.calls?.length) return "Thinking…";
  const took = node.stats?.thought;
  const tokens = node.stats?.reasoning;
  if (took === undefined) return "Reasoning";
  return `Thought for ${took < 0.1 ? "a moment" : seconds(took)}${tokens ? `, ${plural(tokens, "token")}` : ""}`;
}

// ---------------------------------------------------------------- calls

function resultForm(call, actions) {
  const field = el("textarea", { rows: "3", spellcheck: "false", dir: "auto" });
  const label = el("label", {}, `Result of ${call.name}`, field);
  const send = () => actions.answerCall(call, field.value);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
  });
  const invent = el("button", { type: "button", class: "quiet-button" }, "Simulate");
  invent.addEventListener("click", async () => {
    invent.disabled = true;
    invent.textContent = "Simulating…";
    const made = await actions.simulate(call);
    if (made !== null) field.value = made;
    invent.disabled = false;
    invent.textContent = "Simulate";
    field.focus();
  });
  return el("div", { class: "call-form" }, label, el("div", { class: "row" },
    el("button", { type: "button", class: "main-button", onclick: send }, "Use result"), invent));
}

function callCard(call, result, form) {
  const card = el("section", { class: "call", "aria-label": `Call of ${call.name}` },
    el("div", { class: "call-head" }, el("span", {}, "Calls"), el("code", {}, call.name)),
    el("pre", { tabindex: "0", "aria-label": "Arguments" }, pretty(call.arguments)));
  if (result) {
    card.append(el("div", { class: "call-result" }, el("div", { class: "label" }, "Result"),
      el("pre", { tabindex: "0", "aria-label": "Result" }, pretty(result.content))));
  } else if (form) {
    card.append(form);
  }
  return card;
}

// ---------------------------------------------------------------- one message

export class MessageView {
  // `results`: the nodes of the calls' results, by call id.
  constructor(conversation, node, actions) {
    this.conversation = conversation;
    this.node = node;
    this.actions = actions;
    this.root = el("article", { class: `message ${node.role}`, tabindex: "-1", "aria-label": NAMES[node.role] });
    this.forms = new Map(); // call id → the form that waits for its result, so that what was typed stays
  }

  drawUser() {
    this.drawn = this.node.content;
    this.root.replaceChildren(el("div", { class: "text", dir: "auto" }, this.node.content), this.foot());
  }

  drawAssistant() {
    this.label = el("span");
    this.reasoningText = el("div", { class: "text", dir: "auto" });
    this.reasoning = el("details", { class: "reasoning" },
      el("summary", {}, icon("right"), this.label), this.reasoningText);
    this.wait = el("span", { class: "waiting", role: "img", "aria-label": "Waiting for the answer" });
    this.answer = el("div", { class: "answer" });
    this.calls = el("div", { class: "calls" });
    this.tail = el("div");
    this.root.replaceChildren(this.reasoning, this.wait, this.answer, this.calls, this.tail);
  }

  // Does anything stand here that `update` has not drawn? A long conversation asks this of every message at every turn.
  look(running, results) {
    const { node } = this;
    const all = siblings(this.conversation, node);
    const calls = (node.calls ?? []).map((call) => `${call.id}=${results.get(call.id)?.id ?? ""}`);
    return [running, all.length, all.indexOf(node.id), node.reasoning?.length, node.pending, node.stopped, node.cut, node.error, ...calls].join("|");
  }

  // Brings the elements up to the node. While it runs this is called for every frame in which something came.
  update(running, results) {
    const { node } = this;
    if (this.editing) return;
    const look = this.look(running, results);
    if (!running && this.shown === look && this.drawn === node.content) return;
    this.shown = look;
    if (node.role === "user") {
      this.drawUser();
      return;
    }
    if (!this.answer) this.drawAssistant();
    this.reasoning.hidden = !node.reasoning;
    this.reasoning.classList.toggle("thinking", running && !node.content && !node.calls?.length);
    this.label.textContent = reasoningLabel(node, running);
    this.extend(this.reasoningText, node.reasoning ?? "");
    this.wait.hidden = !(running && !node.reasoning && !node.content && !node.calls?.length);
    if (this.drawn !== node.content) {
      this.drawn = node.content;
      renderMarkdown(this.answer, node.content);
    }
    if (!running || node.calls?.length) this.drawCalls(running, results);
    if (!running) this.tail.replaceChildren(...this.failure(), this.foot());
  }

  // Adds what is new as text, so that a selection in the old text stays.
  extend(target, text) {
    const old = target.textContent;
    if (text === old) return;
    if (text.startsWith(old)) target.append(text.slice(old.length));
    else target.textContent = text;
    if (target.childNodes.length > 500) target.textContent = text;
  }

  drawCalls(running, results) {
    this.calls.replaceChildren(...(this.node.calls ?? []).map((call) => {
      const result = results.get(call.id);
      if (!result && !running && !this.forms.has(call.id)) this.forms.set(call.id, resultForm(call, this.actions));
      return callCard(call, result, running ? null : this.forms.get(call.id));
    }));
  }

  failure() {
    const { node, actions } = this;
    if (!node.error) return [];
    return [el("div", { class: "failure", role: "alert" }, el("span", {}, node.error),
      el("button", { type: "button", class: "quiet-button danger", onclick: () => actions.regenerate(node) }, "Try again"))];
  }

  foot() {
    const { node, actions } = this;
    const action = (name, label, run) => iconButton(name, label, run, { class: "icon-button action" });
    const copy = copyButton(() => node.content, "Copy");
    copy.classList.add("action");
    const unfinished = node.pending && "unfinished"; // the page was closed meanwhile, or another tab runs it
    const said = [unfinished, node.stopped ? "stopped" : "", node.cut ? "cut at the longest length" : "", statsText(node.stats)];
    const stats = said.filter(Boolean).join(" · ");
    const parts = [this.branches(), stats && el("span", { class: "stats" }, stats), node.content ? copy : null];
    if (node.role === "assistant" && !node.error) parts.push(action("again", "Answer anew", () => actions.regenerate(node)));
    if (node.content) parts.push(action("edit", "Edit", () => this.edit()));
    parts.push(action("branch", "Branch: go on from here in a new conversation", () => actions.fork(node)));
    return el("div", { class: "foot" }, ...parts.filter(Boolean));
  }

  branches() {
    const all = siblings(this.conversation, this.node);
    if (all.length < 2) return null;
    const at = all.indexOf(this.node.id);
    const go = (step, name, label) => iconButton(name, label, () => this.actions.select(all[at + step]), {
      disabled: all[at + step] === undefined,
    });
    return el("span", { class: "branches", role: "group", "aria-label": `Version ${at + 1} of ${all.length}` },
      go(-1, "left", "Previous version"), `${at + 1}/${all.length}`, go(1, "right", "Next version"));
  }

  // Lasts until the page drops this view: nothing that happens meanwhile takes what is being typed.
  edit() {
    if (this.editing) return;
    this.editing = true;
    const { node, actions } = this;
    const field = el("textarea", { value: node.content, dir: "auto", "aria-label": "Edit message",
      rows: String(Math.min(14, Math.max(3, node.content.split("\n").length))) });
    const done = () => actions.edit(node, field.value);
    const cancel = () => actions.redraw(node.id);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        done();
      }
    });
    this.root.replaceChildren(el("div", { class: "edit" }, field, el("div", { class: "row" },
      el("button", { type: "button", class: "quiet-button", onclick: cancel }, "Cancel"),
      el("button", { type: "button", class: "main-button", onclick: done }, node.role === "user" ? "Send" : "Save"))));
    field.focus();
  }
}
