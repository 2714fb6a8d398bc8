// Several drawings as one.

import { svgElement } from "./dom";

// In the drawing itself, so that a saved one looks the same.
export const plotStyle = {
  fontFamily: "Inter, system-ui, sans-serif",
  fontSize: "11.5px",
  color: "var(--muted)",
  background: "none",
  overflow: "visible",
};

export interface TextLook {
  fill?: string;
  anchor?: "start" | "end";
  weight?: number;
  size?: number;
  halo?: boolean; // keeps it readable on top of lines
}

let canvas: CanvasRenderingContext2D | null = null;

export function textWidth(text: string, { weight = 400, size = 12 }: TextLook = {}): number {
  canvas ??= document.createElement("canvas").getContext("2d")!;
  canvas.font = `${weight} ${size}px Inter, system-ui, sans-serif`;
  return canvas.measureText(text).width;
}

// The text, or as much of its beginning and its end as has room: names that are long mostly differ at the end.
export function fitted(text: string, room: number, look: TextLook = {}): string {
  if (textWidth(text, look) <= room) return text;
  const shortened = (kept: number) => `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
  let low = 1,
    high = text.length;
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if (textWidth(shortened(middle), look) <= room) low = middle;
    else high = middle;
  }
  return shortened(low);
}

// With `room`, in pixels, a text that needs more is shortened, and says all to a pointer.
export function addText(
  svg: SVGSVGElement,
  x: number,
  y: number,
  text: string,
  { fill = "var(--ink)", anchor = "start", weight = 400, size = 12, halo = false }: TextLook = {},
  room = Infinity,
) {
  const style = "font-family: Inter, system-ui, sans-serif";
  const behind: Record<string, string | number> = halo
    ? { stroke: "var(--surface)", "stroke-width": 3.5, "stroke-linejoin": "round", "paint-order": "stroke" }
    : {};
  const shown = fitted(text, room, { weight, size });
  const node = svgElement(
    "text",
    { x, y, fill, style, "text-anchor": anchor, "font-weight": weight, "font-size": size, ...behind },
    shown,
  );
  if (shown !== text) node.append(svgElement("title", {}, text));
  svg.append(node);
}

export interface Placed {
  svg: SVGSVGElement;
  x: number;
  y: number;
}

export function together(width: number, height: number, parts: Placed[]): SVGSVGElement {
  const outer = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "together" });
  for (const { svg, x, y } of parts) {
    svg.setAttribute("x", String(x));
    svg.setAttribute("y", String(y));
    outer.append(svg);
  }
  return outer;
}

export type PlotSvg = SVGSVGElement & {
  scale: (name: string) => { apply: (value: number) => number; invert: (value: number) => number };
};

// Bits on an axis: fp32 has a place of its own above the highest bits that there are.
export function bitsAxis(bits: number[]): {
  domain: [number, number];
  place: (bits: number) => number;
  ticks: number[];
  text: (tick: number) => string;
} {
  const quantised = bits.filter((b) => b > 0);
  const hasFp32 = bits.some((b) => b === 0);
  const low = quantised.length ? Math.min(...quantised) : 2;
  const high = quantised.length ? Math.max(...quantised) : 3;
  const fp32 = high + Math.max(1, Math.round((high - low) / 5));
  const every = high - low > 10 ? 4 : high - low > 5 ? 2 : 1;
  const ticks: number[] = [];
  if (quantised.length) for (let bit = high; bit >= low; bit -= every) ticks.unshift(bit);
  if (hasFp32) ticks.push(fp32);
  return {
    domain: [low === high && !hasFp32 ? low - 1 : low, hasFp32 ? fp32 : low === high ? high + 1 : high],
    place: (b) => (b === 0 ? fp32 : b),
    ticks,
    text: (tick) => (hasFp32 && tick === fp32 ? "fp32" : String(tick)),
  };
}
