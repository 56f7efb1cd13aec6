// A task's status as icon and word. Colour only repeats what both say.
import type { Look } from "../words/look";
import { Icon } from "./Icon";

export function Badge({ look }: { look: Look }) {
  return (
    <span class={`badge tone-${look.tone}`}>
      <Icon name={look.icon} size={16} class={look.icon === "ring" ? "spin" : ""} />
      {look.label}
    </span>
  );
}
