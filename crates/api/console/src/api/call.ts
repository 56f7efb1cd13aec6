// A request in the session's name. A refused token is renewed once and the request sent again: a 401 means that
// nothing was done, so this is safe for writes too, as long as the session is still the same user's.
import { renew, token, user } from "../state/session";
import { request, type Answer, type Ask } from "./http";

export async function call<T>(path: string, ask: Ask = {}): Promise<Answer<T>> {
  const used = token();
  const asker = user.peek();
  const answer = await request<T>(path, used, ask);
  if (answer.kind !== "refused" || answer.problem.status !== 401) return answer;
  // Somebody else may have renewed it while this request was under way.
  if (token() === used && !(await renew())) return answer;
  if (user.peek() !== asker) return answer;
  return request<T>(path, token(), ask);
}
