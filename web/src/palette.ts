// Colours and marks of groups. Baselines are in neutral ink; the rest in seven hues, and from the eighth on with other
// marks and dashes. Their values, in style.css, were searched for: between any two of them and the neutrals lie 17 or
// more units of CIELAB, with normal vision and in the models of protanopia, deuteranopia and tritanopia of Machado et al.
// (2009); and each contrasts with its ground by 3:1 or more, as WCAG asks of graphics.

import type { Experiment, Group } from "./runs";

const hues = 7;
const symbols = ["circle", "triangle", "square", "diamond", "star", "wye", "plus", "times"] as const;
const dashes = [undefined, "6 3", "2 3", "8 3 2 3"] as const;

export interface Look {
  color: string;
  symbol: (typeof symbols)[number];
  dash: string | undefined;
}

const isBaseline = (group: Group) => /^(fp32|static)\b/.test(group.line);

// A group keeps the look that it had first, whatever runs are added while the page is open.
const places = new Map<string, Map<string, number>>();

function place(kind: string, key: string): number {
  const taken = places.get(kind) ?? new Map<string, number>();
  places.set(kind, taken);
  if (!taken.has(key)) taken.set(key, taken.size);
  return taken.get(key)!;
}

function baselineLook(i: number): Look {
  return {
    color: `var(--baseline-${1 + (i % 2)})`,
    symbol: i % 2 === 0 ? "diamond" : "square",
    dash: dashes[Math.floor(i / 2) % 4],
  };
}

function hueLook(i: number): Look {
  const turn = Math.floor(i / hues);
  return {
    color: `var(--hue-${1 + (i % hues)})`,
    symbol: symbols[turn % symbols.length],
    dash: dashes[turn % dashes.length],
  };
}

export function looks({ key: experiment, groups }: Experiment): Map<string, Look> {
  return new Map(
    groups.map((group) => {
      const baseline = isBaseline(group);
      const i = place(`${baseline} ${experiment}`, group.key);
      return [group.key, baseline ? baselineLook(i) : hueLook(i)];
    }),
  );
}
