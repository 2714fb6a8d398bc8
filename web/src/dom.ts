type Attributes = Record<string, string | number | boolean | undefined | ((event: never) => void)>;

// An element with attributes; those that begin with `on` are listeners. Text is only ever set as text.
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value as EventListener);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children);
  return node;
}

const svgNamespace = "http://www.w3.org/2000/svg";

export function svgElement<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number> = {},
  text?: string,
): SVGElementTagNameMap[K] {
  const node = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  if (text !== undefined) node.textContent = text;
  return node;
}

export function labelled(label: string, control: HTMLElement): HTMLLabelElement {
  return element("label", { class: "control" }, element("span", {}, label), control);
}

export function select(
  label: string,
  options: [value: string, text: string][],
  value: string,
  changed: (value: string) => void,
): HTMLLabelElement {
  const control = element(
    "select",
    { onchange: () => changed(control.value) },
    ...options.map(([name, text]) => element("option", { value: name, selected: name === value }, text)),
  );
  return labelled(label, control);
}
