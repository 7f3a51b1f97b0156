// A conversation is a tree: an edit or another answer is a sibling, and `leaf` says which path is being read. Nothing
// here knows the screen, the store or the network.

const ROLES = new Set(["user", "assistant", "tool"]);
export const EFFORTS = ["low", "medium", "high"];
export const SAMPLING = ["temperature", "top_p", "max_completion_tokens", "seed"];

export const newId = () => crypto.randomUUID?.() ??
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16).padStart(8, "0")).join("");

export function newConversation(settings = {}) {
  return {
    id: newId(), title: "", created: Date.now(), updated: Date.now(),
    system: "", effort: "medium", tools: "", results: {}, sampling: {}, ...settings,
    nodes: { root: { id: "root", children: [] } }, leaf: "root",
  };
}

export const nodeOf = (conversation, id) => conversation.nodes[id];

// From the first message to `leaf`, without the root.
export function path(conversation, leaf = conversation.leaf) {
  const nodes = [];
  for (let node = conversation.nodes[leaf]; node && node.id !== "root"; node = conversation.nodes[node.parent]) nodes.push(node);
  return nodes.reverse();
}

export function add(conversation, parent, fields) {
  const node = { id: newId(), parent, children: [], time: Date.now(), ...fields };
  conversation.nodes[node.id] = node;
  conversation.nodes[parent].children.push(node.id);
  conversation.leaf = node.id;
  conversation.updated = Date.now();
  if (!conversation.title && node.role === "user") conversation.title = titleOf(node.content);
  return node;
}

function titleOf(text) {
  const line = text.trim().split("\n")[0];
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line;
}

export const siblings = (conversation, node) => conversation.nodes[node.parent].children;

// Makes the path go through `id`, down to the latest message below it.
export function select(conversation, id) {
  let node = conversation.nodes[id];
  while (node.children.length) node = conversation.nodes[node.children.at(-1)];
  conversation.leaf = node.id;
}

// Another tab kept `other`, the same conversation: what it added is added here, and the path follows it. `running`: the
// node that this tab is writing, which stays. No message of either is lost: true if this one now holds what the other
// lacks, and has to be kept again.
export function merge(conversation, other, running) {
  const { nodes } = conversation;
  for (const [id, theirs] of Object.entries(other.nodes)) {
    const ours = Object.hasOwn(nodes, id) ? nodes[id] : null;
    if (!ours) {
      nodes[id] = theirs;
      continue;
    }
    const children = [...new Set([...ours.children, ...theirs.children])];
    if (ours.pending && ours !== running) {
      for (const key of Object.keys(ours)) delete ours[key];
      Object.assign(ours, theirs);
    }
    ours.children = children;
  }
  const { title, updated, system, effort, tools, results, sampling } = other;
  Object.assign(conversation, { title, updated, system, effort, tools, results, sampling });
  const goesOn = conversation.leaf === "root" || path(other).some((node) => node.id === conversation.leaf);
  if (goesOn && !running) conversation.leaf = other.leaf;
  return Object.values(nodes).some((ours) => !Object.hasOwn(other.nodes, ours.id) || (other.nodes[ours.id].pending && !ours.pending));
}

// A new conversation with everything up to `node`.
export function fork(conversation, node) {
  const copy = newConversation({
    title: conversation.title, system: conversation.system, effort: conversation.effort, tools: conversation.tools,
    results: { ...conversation.results }, sampling: { ...conversation.sampling },
  });
  let parent = "root";
  for (const { role, content, reasoning, calls, callId, name, stats, stopped, time } of path(conversation, node.id)) {
    parent = add(copy, parent, structuredClone({ role, content, reasoning, calls, callId, name, stats, stopped, time })).id;
  }
  return copy;
}

// The calls of an assistant's message that have no result below it on the path.
export function openCalls(conversation, node) {
  const results = new Set(path(conversation).filter((one) => one.role === "tool").map((one) => one.callId));
  return (node.calls ?? []).filter((call) => !results.has(call.id));
}

export function toMessages(conversation, leaf) {
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  for (const node of path(conversation, leaf)) {
    if (node.role === "tool") {
      messages.push({ role: "tool", tool_call_id: node.callId, content: node.content });
    } else if (node.role === "user") {
      messages.push({ role: "user", content: node.content });
    } else if (node.content || node.reasoning || node.calls?.length) {
      const message = { role: "assistant", content: node.content };
      if (node.reasoning) message.reasoning_content = node.reasoning;
      if (node.calls?.length) {
        message.tool_calls = node.calls.map((call) => ({
          id: call.id, type: "function", function: { name: call.name, arguments: call.arguments },
        }));
      }
      messages.push(message);
    }
  }
  return messages;
}

// The pasted text as tools of a request: an array, one tool, or an object with "tools". Throws one line.
export function parseTools(text) {
  if (!text.trim()) return [];
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is no JSON: ${error.message}`);
  }
  const tools = Array.isArray(value) ? value : Array.isArray(value?.tools) ? value.tools : [value];
  return tools.map((tool, index) => {
    const declared = tool?.function ?? tool;
    if (typeof declared?.name !== "string") throw new Error(`Tool ${index + 1} has no name.`);
    const { name, description, strict } = declared;
    const parameters = declared.parameters ?? declared.input_schema;
    return { type: "function", function: { name, description, parameters, strict } };
  });
}

// ---------------------------------------------------------------- import

const text = (value) => (typeof value === "string" ? value : "");

const plainText = (content) => Array.isArray(content)
  ? content.map((part) => text(part?.text)).join("") : text(content);

function cleanCalls(calls) {
  if (!Array.isArray(calls)) return undefined;
  return calls.map((call) => ({
    id: text(call?.id) || newId(), name: text(call?.name ?? call?.function?.name),
    arguments: text(call?.arguments ?? call?.function?.arguments),
  }));
}

function cleanSettings(value) {
  const texts = Object.entries(value.results ?? {}).filter(([, result]) => typeof result === "string");
  const numbers = Object.entries(value.sampling ?? {})
    .filter(([name, number]) => SAMPLING.includes(name) && Number.isFinite(number));
  return {
    title: text(value.title).slice(0, 200), system: text(value.system),
    effort: EFFORTS.includes(value.effort) ? value.effort : "medium",
    tools: text(value.tools), results: Object.fromEntries(texts), sampling: Object.fromEntries(numbers),
  };
}

function cleanStats(value) {
  if (typeof value !== "object" || value === null) return undefined;
  const numbers = Object.entries(value).filter(([, number]) => Number.isFinite(number));
  return Object.fromEntries(numbers);
}

// What another program or an older page wrote: only known fields, of the right types, under new ids.
export function importTree(value) {
  const conversation = newConversation(cleanSettings(value));
  const nodes = value.nodes;
  let leaf = "root";
  const pending = [["root", "root"]];
  const seen = new Set(["root"]);
  for (let at = 0; at < pending.length; at++) {
    const [oldId, newParent] = pending[at];
    const children = Object.hasOwn(nodes, oldId) ? nodes[oldId]?.children : undefined;
    for (const id of Array.isArray(children) ? children : []) {
      const old = Object.hasOwn(nodes, id) ? nodes[id] : undefined;
      if (!old || !ROLES.has(old.role)) throw new Error("A message of this conversation has no known role.");
      if (seen.has(String(id))) throw new Error("A message of this conversation has two places.");
      seen.add(String(id));
      const node = add(conversation, newParent, {
        role: old.role, content: text(old.content), reasoning: text(old.reasoning) || undefined,
        calls: cleanCalls(old.calls), callId: text(old.callId) || undefined, name: text(old.name) || undefined,
        stats: cleanStats(old.stats), stopped: old.stopped === true || undefined,
        time: Number.isFinite(old.time) ? old.time : Date.now(),
      });
      if (id === value.leaf) leaf = node.id;
      pending.push([id, node.id]);
    }
  }
  conversation.leaf = leaf;
  if (leaf === "root" && conversation.nodes.root.children.length) select(conversation, "root");
  return conversation;
}

// A request of the chat form, as "gossamer chat" saves it.
export function importMessages(value) {
  const messages = Array.isArray(value) ? value : value.messages;
  const conversation = newConversation({
    effort: EFFORTS.includes(value.reasoning_effort) ? value.reasoning_effort : "medium",
    tools: Array.isArray(value.tools) && value.tools.length ? JSON.stringify(value.tools, null, 2) : "",
  });
  const system = [];
  for (const [index, message] of messages.entries()) {
    const content = plainText(message?.content);
    if (message?.role === "system" || message?.role === "developer") {
      system.push(content);
      continue;
    }
    if (!ROLES.has(message?.role)) throw new Error(`messages[${index}] has no known role.`);
    add(conversation, conversation.leaf, {
      role: message.role, content,
      reasoning: text(message.reasoning_content ?? message.reasoning ?? message.thinking) || undefined,
      calls: cleanCalls(message.tool_calls), callId: text(message.tool_call_id) || undefined,
      name: text(message.name) || undefined,
    });
  }
  conversation.system = system.join("\n\n");
  return conversation;
}

// All conversations of a file. Throws one line.
export function importFile(content) {
  let value;
  try {
    value = JSON.parse(content);
  } catch {
    throw new Error("This file is no JSON.");
  }
  if (Array.isArray(value?.conversations)) {
    return value.conversations.map((one) => {
      if (typeof one?.nodes !== "object" || one.nodes === null) throw new Error("A conversation of this file has no messages.");
      return importTree(one);
    });
  }
  if (Array.isArray(value) || Array.isArray(value?.messages)) return [importMessages(value)];
  throw new Error("This file holds neither conversations nor messages.");
}

export const exportFile = (conversations) =>
  JSON.stringify({ format: "gossamer-conversations", version: 1, conversations }, null, 2);
