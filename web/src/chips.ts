// Buttons that show and hide groups.

import { element } from "./dom";
import type { Look } from "./palette";
import type { Group } from "./runs";

export interface Chosen {
  experiment: string;
  hidden: Set<string>; // groups
}

export function chips(row: HTMLElement, groups: Group[], look: Map<string, Look>, chosen: Chosen, changed: () => void) {
  const signature = JSON.stringify([groups.map((group) => group.label), [...chosen.hidden].sort()]);
  if (row.dataset.signature === signature) return;
  row.dataset.signature = signature;
  const focused = (document.activeElement as HTMLElement | null)?.dataset.chip;
  const toggle = (key: string) => {
    if (!chosen.hidden.delete(key)) chosen.hidden.add(key);
    changed();
  };
  const all = (shown: boolean) => {
    chosen.hidden = new Set(shown ? [] : groups.map((group) => group.key));
    changed();
  };
  row.replaceChildren(
    ...groups.map((group) =>
      element(
        "button",
        {
          type: "button",
          class: "chip",
          "data-chip": group.key,
          "aria-pressed": String(!chosen.hidden.has(group.key)),
          style: `--chip: ${look.get(group.key)!.color}`,
          title: group.label === group.line ? group.line : `${group.label}\n${group.line}`,
          onclick: () => toggle(group.key),
        },
        group.label,
      ),
    ),
    element("button", { type: "button", class: "quiet", "data-chip": "all", onclick: () => all(true) }, "all"),
    element("button", { type: "button", class: "quiet", "data-chip": "none", onclick: () => all(false) }, "none"),
  );
  if (focused) row.querySelector<HTMLElement>(`[data-chip="${CSS.escape(focused)}"]`)?.focus();
}
