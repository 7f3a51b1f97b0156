// The server's API as the page needs it. Addresses are relative to the page, so that it works behind a proxy's path.
import { apiKey } from "./store.js";

export class ApiError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const LEAVING = 30000; // milliseconds

let leftAt = -Infinity; // when the browser last said that it leaves the page

addEventListener("beforeunload", () => {
  leftAt = performance.now();
});

// Firefox and WebKit cut the connections of a page that they leave before it has ended: that is no fault of the server, and
// only a page that stays after all has to hear of it.
function unlessLeft() {
  const rest = leftAt + LEAVING - performance.now();
  return rest > 0 ? new Promise((resolve) => setTimeout(resolve, rest)) : undefined;
}

let askForKey = async () => false;

// `ask`: returns true if the person gave a key, so that it is worth another try.
export function onMissingKey(ask) {
  askForKey = ask;
}

async function failure(response) {
  let error;
  try {
    error = (await response.json()).error;
  } catch {
    error = null;
  }
  const retry = response.headers.get("Retry-After");
  const wait = response.status === 429 && retry ? ` Try again in ${retry} s.` : "";
  return new ApiError((error?.message ?? `The server answered ${response.status}.`) + wait, response.status, error?.code);
}

export async function request(path, { body, signal } = {}) {
  for (let refused = false; ;) {
    const headers = {};
    if (body) headers["Content-Type"] = "application/json";
    if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
    let response;
    try {
      response = await fetch(path, {
        method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, credentials: "omit",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      await unlessLeft();
      throw new ApiError("The server cannot be reached.", 0);
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await failure(response);
    const reason = await failure(response);
    if (!(await askForKey(refused))) throw reason;
    refused = true;
  }
}

export async function firstModel() {
  const { data } = await (await request("v1/models")).json();
  return data?.[0] ?? null;
}

// null where the server does not count.
export async function countTokens(text, signal) {
  try {
    const reply = await (await request("tokenize", { body: { content: text }, signal })).json();
    return reply.count ?? reply.tokens?.length ?? null;
  } catch {
    return null;
  }
}

export async function answerOnce(body, signal) {
  const reply = await (await request("v1/chat/completions", { body, signal })).json();
  return reply.choices[0].message.content ?? "";
}

async function brokenOff() {
  await unlessLeft();
  return new ApiError("The answer broke off: the connection was closed.", 0);
}

async function next(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw error.name === "AbortError" ? error : await brokenOff();
  }
}

function parse(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiError("The server sent something that is no JSON.", 0);
  }
}

// The data of each event of a stream, as text.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await next(reader);
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line === "" && data.length) {
          yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // whoever stops reading also ends the work at the server
  }
}

// Calls onChunk with each chunk of the answer; returns when the stream has properly ended.
export async function streamAnswer(body, { signal, onChunk }) {
  const response = await request("v1/chat/completions", {
    body: { ...body, stream: true, stream_options: { include_usage: true } }, signal,
  });
  let finished = false;
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    const chunk = parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message ?? "The server stopped with an error.", 500, chunk.error.code);
    finished = finished || chunk.choices?.some((choice) => choice.finish_reason);
    onChunk(chunk);
  }
  if (!finished) throw await brokenOff();
}
