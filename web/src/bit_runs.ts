// Bits over a run: as its schedule says, or, where only training knows, as they were logged.

import type { Tables } from "./columns";
import { lowerBound } from "./thin";

export type BitRuns = [bits: number, steps: number][];

// A line tells the bits of its last step. A closed loop ends a line where its bits change: so these are exact, but of runs
// that were logged before it did.
export function loggedRuns(tables: Tables | undefined): BitRuns | null {
  const columns = tables?.get("train")?.columns;
  const step = columns?.get("step"),
    bits = columns?.get("bits");
  if (!step || !bits) return null;
  const runs: BitRuns = [];
  step.forEach((value, i) => {
    const count = value - (i === 0 ? 0 : step[i - 1]);
    const last = runs.at(-1);
    if (last && last[0] === bits[i]) last[1] += count;
    else runs.push([bits[i], count]);
  });
  return runs;
}

export interface Segment {
  x1: number;
  x2: number;
  bits: number;
}

// Where a step lies on an axis that is known at logged steps; between two of them by the straight line.
export function placeOf(step: Float64Array, x: Float64Array, wanted: number): number {
  const after = lowerBound(step, wanted);
  if (after === step.length) return x.at(-1) ?? NaN;
  const [step0, x0] = after > 0 ? [step[after - 1], x[after - 1]] : [0, 0];
  return step[after] > step0 ? x0 + ((x[after] - x0) * (wanted - step0)) / (step[after] - step0) : x[after];
}

// Stretches of equal bits within [from, to] as far as the run has come; where they are more than pixels, the mean of each
// pixel.
export function segmentsOf(
  runs: BitRuns,
  step: Float64Array,
  x: Float64Array,
  from: number,
  to: number,
  pixels: number,
): Segment[] {
  const found: Segment[] = [];
  const last = step.at(-1) ?? 0;
  let at = 0;
  for (const [bits, count] of runs) {
    if (at >= last) break;
    const x1 = Math.max(from, placeOf(step, x, at)),
      x2 = Math.min(to, placeOf(step, x, Math.min(at + count, last)));
    if (x2 > x1) found.push({ x1, x2, bits });
    at += count;
  }
  return found.length > pixels ? meansOf(found, from, to, pixels) : found;
}

// fp32 has no place among numbers of bits: a pixel that has both shows the bits.
function meansOf(segments: Segment[], from: number, to: number, pixels: number): Segment[] {
  const side = (to - from) / pixels;
  const sums = new Float64Array(pixels),
    widths = new Float64Array(pixels),
    covered = new Float64Array(pixels);
  for (const { x1, x2, bits } of segments) {
    for (let i = Math.floor((x1 - from) / side); i < pixels && from + i * side < x2; ++i) {
      const width = Math.min(x2, from + (i + 1) * side) - Math.max(x1, from + i * side);
      if (width <= 0) continue;
      covered[i] += width;
      if (bits === 0) continue;
      sums[i] += bits * width;
      widths[i] += width;
    }
  }
  return [...covered.keys()]
    .filter((i) => covered[i] > 0)
    .map((i) => ({
      x1: from + i * side,
      x2: Math.min(to, from + (i + 1) * side),
      bits: widths[i] > 0 ? sums[i] / widths[i] : 0,
    }));
}
