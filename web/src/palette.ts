// Colours and marks of groups. Baselines are in neutral ink; the rest in seven hues, and from the eighth on with other
// marks and dashes. Their values, in style.css, were searched for: between any two of them and the neutrals lie 17 or
// more units of CIELAB, with normal vision and in the models of protanopia, deuteranopia and tritanopia of Machado et al.
// (2009); and each contrasts with its ground by 3:1 or more, as WCAG asks of graphics.

import type { Group } from "./runs";

const hues = 7;
const symbols = ["circle", "triangle", "square", "diamond", "star", "wye", "plus", "times"] as const;
const dashes = [undefined, "6 3", "2 3", "8 3 2 3"] as const;

export interface Look {
  color: string;
  symbol: (typeof symbols)[number];
  dash: string | undefined;
}

const isBaseline = (group: Group) => /^(fp32|static)\b/.test(group.line);

export function looks(groups: Group[]): Map<string, Look> {
  const map = new Map<string, Look>();
  let baselines = 0,
    others = 0;
  for (const group of groups) {
    if (isBaseline(group)) {
      map.set(group.key, {
        color: `var(--baseline-${1 + (baselines % 2)})`,
        symbol: symbols[(3 - (baselines % 2)) % 4],
        dash: dashes[Math.floor(baselines / 2) % 4],
      });
      ++baselines;
    } else {
      map.set(group.key, {
        color: `var(--hue-${1 + (others % hues)})`,
        symbol: symbols[Math.floor(others / hues) % symbols.length],
        dash: dashes[Math.floor(others / hues) % dashes.length],
      });
      ++others;
    }
  }
  return map;
}
