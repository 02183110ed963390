// The dashboard as plain files for python/headway/recorder/static/, which the recorder's site
// serves under a strict Content-Security-Policy: nothing inline, nothing from another origin.

import { defineConfig } from "vite";

export default defineConfig({
  // Relative addresses, so that a proxy may put the site under a path of its own.
  base: "./",
  build: {
    outDir: "../python/headway/recorder/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    target: "es2022",
    modulePreload: { polyfill: false },
  },
  // `npx vite` shows the sources in front of a recorder at its usual address.
  server: {
    proxy: Object.fromEntries(
      ["/api", "/metrics"].map((path) => [
        path,
        { target: "http://127.0.0.1:8888", changeOrigin: true },
      ]),
    ),
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
