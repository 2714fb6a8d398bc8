// Bundles the page into one HTML document, and that into a C++ file: node build.mjs PAGE.cpp
// Given a name that ends in .html, it writes the document itself.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const source = (name) => fileURLToPath(new URL(`src/${name}`, import.meta.url));

const packages = new Set(); // folders of those whose files are in the page

async function bundle(entry) {
  const result = await build({
    entryPoints: [source(entry)],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    loader: { ".woff2": "dataurl" },
    logLevel: "warning",
    metafile: true,
  });
  for (const input of Object.keys(result.metafile.inputs)) {
    const folder = resolve(input).match(/^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/)?.[0];
    if (folder) packages.add(folder);
  }
  return result.outputFiles[0].text;
}

// A function as the replacement: `$` in the text must stay what it is.
const fill = (html, place, text) => {
  if (html.split(place).length !== 2) throw new Error(`index.html needs ${place} once`);
  return html.replace(place, () => text);
};

// The licences of what is bundled want to go with it. Many are the same text with another name and year.
function licences() {
  const texts = [...packages].sort().map((folder) => {
    const file = readdirSync(folder).find((name) => /^licen[sc]e/i.test(name));
    if (!file) throw new Error(`${folder} has no licence`);
    const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return `<!--\nThis page holds parts of other programs:\n\n${texts.join("\n").replaceAll("--", "- -")}\n-->`;
}

async function page() {
  let html = readFileSync(source("index.html"), "utf8");
  html = fill(html, "<!-- style -->", `<style>${await bundle("style.css")}</style>`);
  const script = await bundle("main.ts");
  html = fill(html, "<!-- script -->", `<script>${script}</script>`);
  // No other script runs in the page, whatever the runs that it shows are called.
  html = fill(html, "<!-- script hash -->", createHash("sha256").update(script).digest("base64"));
  return html.replace("</html>", () => `${licences()}\n</html>`);
}

// Octal escapes have three digits at most, so that what follows cannot become a part of them.
function literal(bytes) {
  let text = "";
  for (const byte of bytes) {
    const plain = byte >= 32 && byte < 127 && byte !== 34 && byte !== 92 && byte !== 63;
    text += plain ? String.fromCharCode(byte) : `\\${byte.toString(8).padStart(3, "0")}`;
  }
  return `"${text}"`;
}

function cpp(html) {
  const bytes = Buffer.from(html, "utf8");
  const lines = [];
  for (let at = 0; at < bytes.length; at += 4096) lines.push(literal(bytes.subarray(at, at + 4096)));
  return `// Made by web/build.mjs.
#include <string_view>

namespace lowtide {

extern const std::string_view kPageHtml;
const std::string_view kPageHtml(
${lines.join("\n")},
    ${bytes.length});

}  // namespace lowtide
`;
}

const [out] = process.argv.slice(2);
if (!out) throw new Error("usage: node build.mjs PAGE.cpp");
const html = await page();
writeFileSync(out, out.endsWith(".html") ? html : cpp(html));
