// Figures as SVG files, data as CSV files.

import { svgElement } from "./dom";

export type Cell = string | number | null | undefined;

export function cellText(cell: Cell): string {
  if (cell === null || cell === undefined || (typeof cell === "number" && !Number.isFinite(cell))) return "";
  const text = String(cell);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csvLine = (cells: Cell[]) => `${cells.map(cellText).join(",")}\n`;

export function saveBlob(name: string, blob: Blob) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// In parts: a table of millions of rows is longer than the longest string.
export function saveCsv(name: string, parts: (string | Blob)[]) {
  saveBlob(name, new Blob(parts, { type: "text/csv;charset=utf-8" }));
}

const painted = ["fill", "stroke", "color"];

// A copy that looks the same without this page's style sheet: colours are resolved, and the ground is painted.
export function standalone(svg: SVGSVGElement): SVGSVGElement {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const originals = [svg, ...svg.querySelectorAll<SVGElement>("*")];
  const copies = [copy, ...copy.querySelectorAll<SVGElement>("*")];
  originals.forEach((original, i) => {
    const style = getComputedStyle(original);
    for (const property of painted) {
      if (/var\(|currentColor/.test(original.getAttribute(property) ?? ""))
        copies[i].setAttribute(property, style.getPropertyValue(property));
      if (/var\(/.test(original.style.getPropertyValue(property)))
        copies[i].style.setProperty(property, style.getPropertyValue(property));
    }
  });
  const ground = getComputedStyle(svg.closest(".stage") ?? document.body).backgroundColor;
  for (const drawing of [copy, ...copy.querySelectorAll("svg")]) drawing.style.setProperty("--plot-background", ground);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.prepend(svgElement("rect", { width: "100%", height: "100%", fill: ground }));
  return copy;
}

export function saveSvg(name: string, svg: SVGSVGElement) {
  const text = new XMLSerializer().serializeToString(standalone(svg));
  saveBlob(name, new Blob([`<?xml version="1.0" encoding="UTF-8"?>\n${text}\n`], { type: "image/svg+xml" }));
}
