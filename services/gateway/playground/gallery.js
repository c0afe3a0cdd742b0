// This browser's results, in IndexedDB: {id, when, settings, blob, before, times}.

const STORE = "pictures";
const KEPT = 200; // pictures; the oldest go first

function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("diptych", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id", autoIncrement: true });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function run(mode, work) {
  const database = await open();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode);
      const request = work(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onerror = () => reject(transaction.error);
    });
  } finally {
    database.close();
  }
}

export async function keep(picture) {
  const id = await run("readwrite", (store) => store.add(picture));
  const keys = await run("readonly", (store) => store.getAllKeys());
  for (const old of keys.slice(0, Math.max(0, keys.length - KEPT))) await forget(old);
  return id;
}

export const all = () => run("readonly", (store) => store.getAll());
export const forget = (id) => run("readwrite", (store) => store.delete(id));
export const forgetAll = () => run("readwrite", (store) => store.clear());
