// Turns: what is asked of the server and what becomes of its answers. Several conversations may run at once. The screen
// learns of changes through `changed(conversation, node)`; nothing here touches an element.
import { streamAnswer, answerOnce } from "./api.js";
import { add, openCalls, parseTools, path, toMessages } from "./tree.js";

const MAX_ROUNDS = 16; // of calls with fixed results in one turn
const MIN_TIMED = 0.02; // seconds: what came faster came in one piece, and its rate says nothing

export class Chat {
  constructor({ model, changed }) {
    this.model = model;
    this.changed = changed;
    this.running = new Map(); // conversation id → {node, controller}
  }

  isRunning(conversation, node) {
    const run = this.running.get(conversation?.id);
    return run !== undefined && (node === undefined || run.node === node);
  }

  // Resolves when nothing of this conversation runs any more.
  async stop(conversation) {
    const run = this.running.get(conversation.id);
    run?.controller.abort();
    await run?.done;
  }

  requestOf(conversation, leaf) {
    const body = {
      model: this.model(), messages: toMessages(conversation, leaf), reasoning_effort: conversation.effort,
      ...conversation.sampling,
    };
    const tools = parseTools(conversation.tools);
    if (tools.length) body.tools = tools;
    return body;
  }

  // Asks for an answer to the message `parent`, and for more as long as its calls have fixed results.
  async answer(conversation, parent) {
    if (this.isRunning(conversation)) return;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const node = await this.answerOnce(conversation, parent);
      const fixed = node.error || node.stopped || node.cut ? [] : openCalls(conversation, node);
      if (!fixed.length || !fixed.every((call) => Object.hasOwn(conversation.results, call.name))) return;
      parent = node.id;
      for (const call of fixed) parent = this.addResult(conversation, parent, call, conversation.results[call.name]).id;
    }
  }

  addResult(conversation, parent, call, content) {
    return add(conversation, parent, { role: "tool", content, callId: call.id, name: call.name });
  }

  async answerOnce(conversation, parent) {
    const controller = new AbortController();
    const node = add(conversation, parent, { role: "assistant", content: "", pending: true });
    const clock = { begin: performance.now(), pieces: 0 };
    let over;
    const done = new Promise((resolve) => { over = resolve; });
    this.running.set(conversation.id, { node, controller, clock, done });
    this.changed(conversation, node, "begun");
    try {
      const body = this.requestOf(conversation, parent);
      await streamAnswer(body, {
        signal: controller.signal,
        onChunk: (chunk) => {
          take(node, chunk, clock);
          this.changed(conversation, node, "more");
        },
      });
    } catch (error) {
      if (error.name === "AbortError") node.stopped = true;
      else node.error = String(error.message ?? error);
    }
    node.stats = statsOf(clock);
    delete node.pending;
    this.running.delete(conversation.id);
    this.changed(conversation, node, "ended");
    over();
    return node;
  }

  // tok/s so far, counted by pieces: most pieces are one token.
  progress(conversation) {
    const clock = this.running.get(conversation?.id)?.clock;
    if (!clock?.first) return null;
    const took = (clock.last - clock.first) / 1000;
    return { pieces: clock.pieces, rate: took > 0.2 ? (clock.pieces - 1) / took : null };
  }

  // One result of a call. When it was the last that was missing, the turn goes on.
  async resolve(conversation, node, call, content) {
    const { id } = this.addResult(conversation, path(conversation).at(-1).id, call, content);
    this.changed(conversation, node, "result");
    if (!openCalls(conversation, node).length) await this.answer(conversation, id);
  }

  // The model makes up what the function might return.
  simulate(conversation, call) {
    const tool = parseTools(conversation.tools).find((one) => one.function.name === call.name);
    const about = tool ? `\nIts declaration: ${JSON.stringify(tool.function)}` : "";
    return answerOnce({
      model: this.model(), reasoning_effort: "low", max_completion_tokens: 1024, response_format: { type: "json_object" },
      messages: [
        { role: "system", content: "You stand in for a function while somebody tests a program. Reply with one plausible return value as JSON, and with nothing else." },
        { role: "user", content: `The function ${call.name} was called with ${call.arguments}.${about}` },
      ],
    });
  }
}

// ---------------------------------------------------------------- chunks

function take(node, chunk, clock) {
  const now = performance.now();
  if (chunk.usage) clock.usage = chunk.usage;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  if (choice.finish_reason === "length") node.cut = true;
  const delta = choice.delta ?? {};
  const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
  const came = reasoning || delta.content || delta.tool_calls?.length;
  if (!came) return;
  clock.first ??= now;
  clock.last = now;
  clock.pieces++;
  if (reasoning) node.reasoning = (node.reasoning ?? "") + reasoning;
  else if (node.reasoning) clock.thoughtUntil ??= now;
  if (delta.content) node.content += delta.content;
  for (const piece of delta.tool_calls ?? []) takeCall(node, piece);
}

function takeCall(node, piece) {
  node.calls ??= [];
  const call = (node.calls[piece.index] ??= { id: "", name: "", arguments: "" });
  if (piece.id) call.id = piece.id;
  if (piece.function?.name) call.name = piece.function.name;
  call.arguments += piece.function?.arguments ?? "";
}

// Numbers only; what is unknown is left out.
function statsOf(clock) {
  const { usage } = clock;
  const took = (clock.last - clock.first) / 1000;
  const output = usage?.completion_tokens;
  const tokens = output ?? clock.pieces;
  const stats = {
    output, input: usage?.prompt_tokens, total: usage?.total_tokens,
    cached: usage?.prompt_tokens_details?.cached_tokens,
    reasoning: usage?.completion_tokens_details?.reasoning_tokens,
    first: clock.first && (clock.first - clock.begin) / 1000,
    thought: clock.first && ((clock.thoughtUntil ?? clock.last) - clock.first) / 1000,
    rate: took > MIN_TIMED && tokens > 1 ? (tokens - 1) / took : undefined,
  };
  return Object.fromEntries(Object.entries(stats).filter(([, value]) => Number.isFinite(value)));
}
