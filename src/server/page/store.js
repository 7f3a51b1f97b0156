// Conversations in the browser's own database, settings of the page beside it. Where the browser refuses to keep
// anything (a private window may), all of it lives as long as the page.

const DATABASE = "gossamer";
const TABLE = "conversations";

const asPromise = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

// A browser's own word for it is the empty string.
const reason = (error) => error?.name === "QuotaExceededError"
  ? new Error("its room for this site is used up. Export what is dear to you and delete something.")
  : error ?? new Error("it was not written.");

export class Store {
  // Other tabs of this page hear of what one keeps.
  constructor(onChange) {
    this.channel = typeof BroadcastChannel === "function" ? new BroadcastChannel(DATABASE) : null;
    if (this.channel) this.channel.onmessage = ({ data }) => onChange(data.id, data.removed);
  }

  async open() {
    try {
      const request = indexedDB.open(DATABASE, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: "id" });
      this.database = await asPromise(request);
    } catch {
      this.database = null;
    }
    return this.database !== null;
  }

  table(mode) {
    return this.database.transaction(TABLE, mode).objectStore(TABLE);
  }

  async all() {
    return this.database ? asPromise(this.table("readonly").getAll()) : [];
  }

  async get(id) {
    return this.database ? asPromise(this.table("readonly").get(id)) : undefined;
  }

  // Rejects if the browser's room is used up: that is known when the transaction ends.
  async write(change) {
    if (!this.database) return;
    const table = this.table("readwrite");
    const { transaction } = table;
    const done = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = transaction.onerror = () => reject(reason(transaction.error));
    });
    change(table);
    await done;
  }

  async put(conversation) {
    await this.write((table) => table.put(conversation)); // a copy is taken at once
    this.channel?.postMessage({ id: conversation.id, removed: false });
  }

  async remove(id) {
    await this.write((table) => table.delete(id));
    this.channel?.postMessage({ id, removed: true });
  }
}

const PREFIX = "gossamer.";

export function setting(name, fallback = "") {
  try {
    return localStorage.getItem(PREFIX + name) ?? fallback;
  } catch {
    return fallback;
  }
}

export function keepSetting(name, value) {
  try {
    if (value === "") localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // A page that may keep nothing still works.
  }
}

// What is being written and not yet sent: of this tab, over a reload.
export function draft() {
  try {
    return sessionStorage.getItem(`${PREFIX}draft`) ?? "";
  } catch {
    return "";
  }
}

export function keepDraft(text) {
  try {
    sessionStorage.setItem(`${PREFIX}draft`, text);
  } catch {
    // See above.
  }
}

// The key: for this tab, or for good if the person says so.
let keyOfPage = "";

export function apiKey() {
  try {
    return keyOfPage || sessionStorage.getItem(`${PREFIX}key`) || setting("key");
  } catch {
    return keyOfPage;
  }
}

export function keepApiKey(key, forGood) {
  keyOfPage = key;
  keepSetting("key", forGood ? key : "");
  try {
    sessionStorage.setItem(`${PREFIX}key`, key);
  } catch {
    // See above.
  }
}
