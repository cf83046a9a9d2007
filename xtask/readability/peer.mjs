// Prints what Mozilla's Readability keeps of each page of a folder, as one JSON object: name to text.
// node peer.mjs CORPUS MODULES, where MODULES has node_modules with @mozilla/readability and linkedom.
import { createRequire } from "node:module";
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";

const [corpus, modules] = process.argv.slice(2);
const load = createRequire(join(resolve(modules), "x.js"));
const { Readability } = load("@mozilla/readability");
const { parseHTML } = load("linkedom");

const kept = {};
for (const file of readdirSync(corpus).filter((file) => file.endsWith(".html"))) {
  const bytes = readFileSync(join(corpus, file));
  const label = /charset\s*=\s*["']?([\w-]+)/i.exec(bytes.toString("latin1"))?.[1] ?? "utf-8";
  const { document } = parseHTML(new TextDecoder(label).decode(bytes));
  let text = "";
  try {
    const article = new Readability(document).parse();
    // A space around each element: `textContent` glues cells and blocks together.
    const content = (article?.content ?? "").replace(/<[^>]*>/g, " ");
    const decoded = parseHTML(`<p>${content}</p>`).document.querySelector("p").textContent;
    text = `${article?.title ?? ""} ${article?.byline ?? ""} ${decoded}`;
  } catch (error) {
    console.error(`${file}: ${error.message}`);
  }
  kept[file.replace(/\.html$/, "")] = text;
}
console.log(JSON.stringify(kept));
