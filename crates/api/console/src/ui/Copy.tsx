// A button that copies a text and says so in its place.
import { useEffect, useState } from "preact/hooks";
import { announce } from "../state/announce";
import { Icon, type IconName } from "./Icon";

interface Props {
  /** Asked for when pressed, so that a link is fresh. */
  text: () => string;
  label: string;
  icon?: IconName;
  /** What is said after it worked. */
  done?: () => string;
  /** Only the icon is shown; the label is read. */
  quiet?: boolean;
}

const SHOWN_MS = 4_000;

export function Copy({ text, label, icon = "copy", done = () => "Copied", quiet = false }: Props) {
  const [said, say] = useState("");
  useEffect(() => {
    if (!said) return;
    const timer = setTimeout(() => say(""), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async (): Promise<void> => {
    const worked = await write(text());
    const sentence = worked ? done() : "This browser does not allow copying here.";
    say(sentence);
    announce(sentence);
  };
  return (
    <span class="copy">
      <button type="button" class={quiet ? "icon-button small" : "button"} onClick={() => void copy()} aria-label={quiet ? label : undefined} title={quiet ? label : undefined}>
        <Icon name={icon} size={quiet ? 15 : 18} />
        {!quiet && label}
      </button>
      <span class="said">{said}</span>
    </span>
  );
}

/** The clipboard proper exists on secure origins only; elsewhere the old command still works. */
async function write(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const worked = document.execCommand("copy");
    field.remove();
    return worked;
  }
}
