// One line for trouble around the page: the network, else the worst of what the server says is degraded.
import { degraded } from "../state/degraded";
import { online } from "../state/media";
import { bannerSentence } from "../words/banner";
import { Icon } from "./Icon";

export function Banner() {
  const sentence = online.value ? bannerSentence(degraded.value) : "You are offline. Videos go on; your draft is kept.";
  if (!sentence) return null;
  return (
    <div class="banner">
      <p>
        <Icon name="warning" size={16} />
        {sentence}
      </p>
    </div>
  );
}
