// Leaves nothing of one user for the next who connects on the same page. The draft stays: it belongs to the browser's
// tab, and shows to whoever sits in front of it anyway.
import { forgetListings } from "../pages/Tasks";
import { credits, me } from "./account";
import { missing } from "./follow";
import { recent } from "./recent";
import { forgetSends } from "./send";
import { forgetTasks } from "./tasks";

export function forgetAll(): void {
  forgetTasks();
  forgetSends();
  forgetListings();
  me.value = null;
  credits.value = null;
  recent.value = null;
  missing.value = new Set();
}
