// Credits and ids as people read them.

/** 1,240: grouped the same everywhere, whatever the browser's language. */
export const grouped = (n: number): string => String(Math.trunc(n)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/** "1 credit", "1,240 credits". */
export const credits = (n: number): string => `${grouped(n)} ${n === 1 ? "credit" : "credits"}`;

/** An id cut in its middle, where nobody compares: task_0192..9f3a. */
export const shortId = (id: string): string => (id.length <= 16 ? id : `${id.slice(0, 9)}..${id.slice(-4)}`);
