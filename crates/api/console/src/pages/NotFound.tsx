// A page or a video that isn't there, with the way on.
import { Title } from "../ui/Title";

export function NotFound({ what }: { what: string }) {
  return (
    <div class="notice">
      <Title>Not found</Title>
      <p>{what}</p>
      <p>
        <a class="button" href="#/">
          Create a video
        </a>
      </p>
    </div>
  );
}
