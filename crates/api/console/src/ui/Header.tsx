// The bar on top: where you are, whether what you see is live, what you have.
import { useEffect, useRef } from "preact/hooks";
import { credits, me } from "../state/account";
import { liveness } from "../state/follow";
import { disconnect, phase } from "../state/session";
import { setTheme, theme, THEMES } from "../state/theme";
import { grouped } from "../format/figures";
import { route, tasksHref } from "../router";
import { Icon, Mark } from "./Icon";

export function Header() {
  const connected = phase.value === "connected" || phase.value === "starting";
  return (
    <header class="header">
      <div class="header-inner">
        <a class="brand" href="#/" aria-label="AIVideo, create a video">
          <Mark />
          <span>AIVideo</span>
        </a>
        {connected && (
          <nav class="nav wide-only" aria-label="Pages">
            <Links />
          </nav>
        )}
        <span class="header-space" />
        {connected && <Live />}
        {connected && <Money />}
        <ThemeButton />
        {connected && <Menu />}
      </div>
    </header>
  );
}

function Links() {
  const page = route.value.page;
  return (
    <>
      <a href="#/" aria-current={page === "create" ? "page" : undefined}>
        Create
      </a>
      <a href={tasksHref("")} aria-current={page === "tasks" ? "page" : undefined}>
        Tasks
      </a>
    </>
  );
}

function Live() {
  const now = liveness.value;
  if (now.kind === "idle") return <span class="live" />;
  const live = now.kind === "live";
  return (
    <span class={`live ${live ? "live-on" : "live-off"}`}>
      <span class="live-dot" aria-hidden="true" />
      {live ? "Live" : `Checking every ${Math.max(1, Math.round(now.everyMs / 1_000))} s`}
    </span>
  );
}

function Money() {
  const balance = credits.value;
  return (
    <span class="money" aria-label="Credits">
      {balance && (
        <>
          <span>
            <b>{grouped(balance.available)}</b> <span class="money-word">{balance.available === 1 ? "credit" : "credits"}</span>
          </span>
          {balance.held > 0 && <span class="money-held">{grouped(balance.held)} held</span>}
        </>
      )}
    </span>
  );
}

function ThemeButton() {
  const next = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system";
  return (
    <button type="button" class="icon-button" onClick={() => setTheme(next)} aria-label={`Theme: ${theme.value}. Change to ${next}`} title={`Theme: ${theme.value}`}>
      <Icon name={theme.value} />
    </button>
  );
}

/** A popover: Esc and a click elsewhere close it, and the browser sees to the focus. */
function Menu() {
  const box = useRef<HTMLDivElement>(null);
  const where = route.value;
  useEffect(() => box.current?.hidePopover?.(), [where]);
  return (
    <>
      <button type="button" class="icon-button" popovertarget="menu" aria-label="Menu" title="Menu">
        <Icon name="menu" />
      </button>
      <div ref={box} id="menu" class="menu" popover="auto">
        <nav class="menu-links narrow-only" aria-label="Pages, menu">
          <Links />
        </nav>
        <a href="/docs">API documentation</a>
        {me.value && (
          <p class="menu-who" title={me.value.user_id}>
            {me.value.user_name}, {me.value.tenant_name} ({me.value.tier})
          </p>
        )}
        <button type="button" class="button" onClick={disconnect}>
          Disconnect
        </button>
      </div>
    </>
  );
}
