// Conversations in the browser's own database, settings of the page beside it. Where the browser refuses to keep
// anything (a private window may), all of it lives as long as the page.

const DATABASE = "gossamer";
const TABLE = "conversations";

const asPromise = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

export class Store {
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

  // Rejects if the browser's room is used up.
  async put(conversation) {
    if (this.database) await asPromise(this.table("readwrite").put(structuredClone(conversation)));
  }

  async remove(id) {
    if (this.database) await asPromise(this.table("readwrite").delete(id));
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
