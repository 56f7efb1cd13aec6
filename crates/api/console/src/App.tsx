// The page around the pages.
import { Connect } from "./pages/Connect";
import { Create } from "./pages/Create";
import { NotFound } from "./pages/NotFound";
import { TaskPage } from "./pages/TaskPage";
import { Tasks } from "./pages/Tasks";
import { route } from "./router";
import { phase } from "./state/session";
import { Banner } from "./ui/Banner";
import { Header } from "./ui/Header";

export function App() {
  const skip = (event: Event): void => {
    // The fragment is the router's, so the link moves the focus itself.
    event.preventDefault();
    document.querySelector<HTMLElement>("h1")?.focus();
  };
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the content
      </a>
      <Header />
      <Banner />
      <main id="main" class="main">
        <Page />
      </main>
    </>
  );
}

function Page() {
  if (phase.value === "disconnected" || phase.value === "ended") return <Connect />;
  const now = route.value;
  if (phase.value === "starting") return now.page === "create" ? <Waiting /> : null;
  switch (now.page) {
    case "create":
      return <Create />;
    case "task":
      return <TaskPage key={now.id} id={now.id} />;
    case "tasks":
      return <Tasks key={now.status} status={now.status} />;
    default:
      return <NotFound what="There is no such page." />;
  }
}

/** The moment before it is known who is there. Empty: whatever it showed would jump. */
const Waiting = () => <div class="create" aria-hidden="true" />;
