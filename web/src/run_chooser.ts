// Which one of some runs a figure shows.

import { element } from "./dom";
import type { Run } from "./runs";

export class RunChooser {
  readonly root: HTMLSelectElement;

  constructor(onchange: () => void) {
    this.root = element("select", { onchange });
  }

  chosen(runs: Run[]): Run | undefined {
    return runs.find((run) => String(run.id) === this.root.value) ?? runs[0];
  }

  // Left alone where the runs are those of before: somebody may have it open.
  offer(runs: Run[]) {
    const signature = runs.map((run) => `${run.id} ${run.name}`).join("\n");
    if (this.root.dataset.signature === signature) return;
    this.root.dataset.signature = signature;
    const chosen = this.root.value;
    this.root.replaceChildren(
      ...runs.map((run) => element("option", { value: run.id, selected: String(run.id) === chosen }, run.name)),
    );
  }
}
