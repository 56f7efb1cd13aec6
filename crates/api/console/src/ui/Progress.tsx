// The bar. Known progress fills it; unknown progress moves, and has no number for anybody; waiting leaves it empty.
export function Progress({ value, moving, text }: { value: number | null; moving: boolean; text: string }) {
  const known = value !== null;
  return (
    <div
      class={`progress ${!known && moving ? "moving" : ""}`}
      role="progressbar"
      aria-label="Progress"
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={known ? value : undefined}
      aria-valuetext={text}
    >
      <div class="progress-fill" style={{ transform: known ? `scaleX(${value / 100})` : undefined }} />
    </div>
  );
}
