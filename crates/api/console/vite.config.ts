// Builds the console into `dist/`, which is committed and embedded in the binary, so that cargo needs no Node.
// The output has to be the same bytes on every machine: a test builds it again and compares.
import { defineConfig } from "vite";

export default defineConfig({
  // The page is served at `/`, its files below `/console/`: `/assets` belongs to the API.
  base: "/console/",
  build: {
    assetsDir: "",
    // The content security policy allows no data: address, so nothing may be inlined.
    assetsInlineLimit: 0,
    // One script and one style sheet: there is nothing to preload.
    modulePreload: false,
    cssCodeSplit: false,
    target: ["chrome123", "firefox125", "safari17.5"],
    reportCompressedSize: false,
  },
  server: {
    // `npm run dev` beside a running demo: everything that isn't the page goes to the API.
    proxy: Object.fromEntries(
      ["generations", "tasks", "models", "me", "credits", "assets", "browser-tokens", "demo-token", "problems", "docs"].map(
        (route) => [`/${route}`, "http://127.0.0.1:8080"],
      ),
    ),
  },
});
