// What all sections look at.

import type { Look } from "./palette";
import type { Experiment, Measure, Split } from "./runs";
import type { Store } from "./store";

export interface Context {
  readonly store: Store;
  readonly experiment: Experiment; // the one that is chosen
  readonly look: Map<string, Look>; // by group
  readonly split: Split;
  readonly measure: Measure;
}

export interface Section {
  root: HTMLElement;
  usesLines?: boolean; // of the runs' logged lines: drawn anew when they arrive
  update(): void;
}
