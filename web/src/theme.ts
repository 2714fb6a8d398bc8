// Light, dark, or as the system says.

import { element } from "./dom";

const themes = ["system", "light", "dark"] as const;
type Theme = (typeof themes)[number];

// A page opened from disk may not be allowed to remember.
function remembered(): Theme {
  try {
    return (localStorage.getItem("lowtide-theme") as Theme) ?? "system";
  } catch {
    return "system";
  }
}

function apply(theme: Theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("lowtide-theme", theme);
  } catch {
    // it holds until the page is closed
  }
}

export function themeButton(): HTMLElement {
  let theme = remembered();
  const label = () => `Theme: ${theme}`;
  apply(theme);
  const button = element(
    "button",
    {
      type: "button",
      id: "theme",
      class: "quiet",
      onclick: () => {
        theme = themes[(themes.indexOf(theme) + 1) % themes.length];
        apply(theme);
        button.textContent = label();
      },
    },
    label(),
  );
  return button;
}
