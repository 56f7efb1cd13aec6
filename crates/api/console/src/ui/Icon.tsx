// The icons: Lucide paths (ISC licence, https://lucide.dev), copied so that the page fetches nothing for them. They are
// decoration: the words beside them say the same.

const PATHS = {
  clock: ["M12 6v6l4 2", "@"],
  arrow: ["@", "m12 16 4-4-4-4", "M8 12h8"],
  ring: ["M21 12a9 9 0 1 1-6.219-8.56"],
  down: ["@", "M12 8v8", "m8 12 4 4 4-4"],
  question: ["@", "M9.09 9a3 3 0 0 1 5.83 1c0 2-3 3-3 3", "M12 17h.01"],
  minus: ["@", "M8 12h8"],
  check: ["@", "m9 12 2 2 4-4"],
  cross: ["@", "m15 9-6 6", "m9 9 6 6"],
  slash: ["@", "m4.9 4.9 14.2 14.2"],
  dot: ["@", "M12 12h.01"],
  copy: ["M10 8h10a2 2 0 0 1 2 2v10a2 2 0 0 1-2 2H10a2 2 0 0 1-2-2V10a2 2 0 0 1 2-2z", "M4 16c-1.1 0-2-.9-2-2V4c0-1.1.9-2 2-2h10c1.1 0 2 .9 2 2"],
  download: ["M12 15V3", "M21 15v4a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2v-4", "m7 10 5 5 5-5"],
  link: ["M10 13a5 5 0 0 0 7.54.54l3-3a5 5 0 0 0-7.07-7.07l-1.72 1.71", "M14 11a5 5 0 0 0-7.54-.54l-3 3a5 5 0 0 0 7.07 7.07l1.71-1.71"],
  terminal: ["m4 17 6-6-6-6", "M12 19h8"],
  pencil: ["M21.174 6.812a1 1 0 0 0-3.986-3.987L3.842 16.174a2 2 0 0 0-.5.83l-1.321 4.352a.5.5 0 0 0 .623.622l4.353-1.32a2 2 0 0 0 .83-.497z", "m15 5 4 4"],
  share: ["M4 12v8a2 2 0 0 0 2 2h12a2 2 0 0 0 2-2v-8", "m16 6-4-4-4 4", "M12 2v13"],
  menu: ["M4 6h16", "M4 12h16", "M4 18h16"],
  system: ["M4 3h16a2 2 0 0 1 2 2v10a2 2 0 0 1-2 2H4a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2z", "M8 21h8", "M12 17v4"],
  light: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 2v2", "M12 20v2", "m4.93 4.93 1.41 1.41", "m17.66 17.66 1.41 1.41", "M2 12h2", "M20 12h2", "m6.34 17.66-1.41 1.41", "m19.07 4.93-1.41 1.41"],
  dark: ["M12 3a6 6 0 0 0 9 9 9 9 0 1 1-9-9Z"],
  back: ["m15 18-6-6 6-6"],
  forward: ["m9 18 6-6-6-6"],
  warning: ["m21.73 18-8-14a2 2 0 0 0-3.48 0l-8 14A2 2 0 0 0 4 21h16a2 2 0 0 0 1.73-3", "M12 9v4", "M12 17h.01"],
} as const;

export type IconName = keyof typeof PATHS;

const CIRCLE = "M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20z";

export function Icon({ name, size = 18, class: extra = "" }: { name: IconName; size?: number; class?: string }) {
  return (
    <svg class={`icon ${extra}`} viewBox="0 0 24 24" width={size} height={size} aria-hidden="true" focusable="false">
      {PATHS[name].map((path) => (
        <path key={path} d={path === "@" ? CIRCLE : path} />
      ))}
    </svg>
  );
}

/** The product's mark. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" />
      <path d="M12.5 9.2v13.6a1 1 0 0 0 1.5.87l11-6.8a1 1 0 0 0 0-1.74l-11-6.8a1 1 0 0 0-1.5.87z" />
    </svg>
  );
}
