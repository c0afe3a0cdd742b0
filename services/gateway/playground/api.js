// The gateway's HTTP API, as this page uses it: one stream of events for each paint, and the state of the services.

export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? `HTTP ${status}`);
    this.status = status;
    this.param = error?.param ?? null;
    this.code = error?.code ?? null;
  }
}

function headers(key) {
  return key ? { authorization: `Bearer ${key}` } : {};
}

async function refuse(reply) {
  const body = await reply.json().catch(() => null);
  throw new ApiError(reply.status, body?.error);
}

// `fields` and an image as [body, content type]. Not FormData: that turns a prompt's line breaks into CRLF, which is another prompt.
function multipart(fields, image) {
  const boundary = `diptych-${Array.from(crypto.getRandomValues(new Uint32Array(4)), (word) => word.toString(36)).join("")}`;
  const head = (rest) => `--${boundary}\r\ncontent-disposition: form-data; ${rest}\r\n\r\n`;
  const parts = Object.entries(fields).map(([name, value]) => `${head(`name="${name}"`)}${value}\r\n`);
  return [new Blob([...parts, head('name="image"; filename="image"'), image, `\r\n--${boundary}--\r\n`]), `multipart/form-data; boundary=${boundary}`];
}

// Sends `settings` (and a File, for an edit) and yields {comment} and {type, ...} objects until the stream ends.
export async function* paint(settings, image, key, signal) {
  const body = { ...settings, stream: true, partial_images: 3 };
  let request;
  if (image) {
    const [form, type] = multipart(body, image);
    request = fetch("/v1/images/edits", { method: "POST", body: form, headers: { "content-type": type, ...headers(key) }, signal });
  } else {
    request = fetch("/v1/images/generations", {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "content-type": "application/json", ...headers(key) },
      signal,
    });
  }
  const reply = await request;
  if (!reply.ok) await refuse(reply);
  for await (const event of events(reply.body)) {
    if (event.error) throw new ApiError(500, event.error);
    yield event;
  }
}

// Server-sent events of a byte stream: comments as {comment}, data lines as their JSON.
export async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let parts = []; // an image is megabytes: join once a block is whole, not at every chunk
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const pieces = (parts.length && parts.at(-1).endsWith("\n") ? parts.pop() + value : value).split("\n\n");
      parts.push(pieces.shift());
      for (const piece of pieces) {
        const event = parse(parts.join(""));
        if (event) yield event;
        parts = [piece];
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined); // already closed, or aborted by the user
  }
}

function parse(block) {
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith(":")) return { comment: line.slice(1).trim() };
    if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return data.length ? JSON.parse(data.join("\n")) : null;
}

// {gateway, ar, dit, queue} of the deployment; throws when the gateway is not there.
export async function state(key) {
  const reply = await fetch("/v1/info", { headers: headers(key), cache: "no-store" });
  if (!reply.ok) await refuse(reply);
  return reply.json();
}
