// A picture's settings as a command or a program that makes it again. An API key is named, never written down.

const STANDARD = ["prompt", "n", "size", "output_format"]; // the SDK's own arguments; the rest goes to extra_body

const quoteShell = (text) => `'${String(text).replaceAll("'", `'\\''`)}'`;

export function asCurl(settings, edit, keyed = false, origin = location.origin) {
  const key = keyed ? ` -H "authorization: Bearer $DIPTYCH_API_KEY"` : "";
  const decode = `python3 -c 'import base64, json, sys; [open(f"image-{i}.${settings.output_format}", "wb")` +
    `.write(base64.b64decode(d["b64_json"])) for i, d in enumerate(json.load(sys.stdin)["data"])]'`;
  if (edit) {
    const fields = Object.entries(settings).map(([name, value]) => `  --form-string ${quoteShell(`${name}=${value}`)} \\\n`);
    return `curl -s ${origin}/v1/images/edits${key} \\\n${fields.join("")}  -F image=@image.png |\n  ${decode}\n`;
  }
  const body = quoteShell(JSON.stringify(settings));
  return `curl -s ${origin}/v1/images/generations${key} -H 'content-type: application/json' \\\n  -d ${body} |\n  ${decode}\n`;
}

export function asPython(settings, edit, keyed = false, origin = location.origin) {
  const own = Object.entries(settings).filter(([name]) => STANDARD.includes(name));
  const extra = Object.entries(settings).filter(([name]) => !STANDARD.includes(name));
  const argument = ([name, value]) => `    ${name}=${JSON.stringify(value)},\n`;
  const image = edit ? `    image=open("image.png", "rb"),\n` : "";
  const key = keyed ? `os.environ["DIPTYCH_API_KEY"]` : `"none"`;
  return `import base64
${keyed ? "import os\n" : ""}
from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${origin}/v1`)}, api_key=${key})
result = client.images.${edit ? "edit" : "generate"}(
${image}${own.map(argument).join("")}    extra_body=${JSON.stringify(Object.fromEntries(extra))},
)
for i, image in enumerate(result.data):
    open(f"image-{i}.${settings.output_format}", "wb").write(base64.b64decode(image.b64_json))
`;
}
