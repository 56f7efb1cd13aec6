// Starts the console: the router, then the session, then what belongs to whoever is connected.
import { effect } from "@preact/signals";
import { render } from "preact";
import { App } from "./App";
import { startRouter } from "./router";
import { loadAccount } from "./state/account";
import { resume } from "./state/send";
import { forgetAll } from "./state/forget";
import { phase, start, user } from "./state/session";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/layout.css";
import "./styles/create.css";
import "./styles/task.css";

startRouter();
const root = document.getElementById("app");
if (root) render(<App />, root);

effect(() => {
  if (phase.value !== "connected") return;
  void loadAccount();
  resume();
});

// What one user saw is not for the next one at the same page; a user who comes back finds it again.
let last: string | null = null;
effect(() => {
  const now = user.value;
  if (last !== null && now !== last) forgetAll();
  last = now;
});

void start();
