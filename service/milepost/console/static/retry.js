// Sending a run on that waits for an operator.

import { posting } from "./api.js";
import { form, h, put, trouble } from "./dom.js";

/** Return its `element`, and `renew(run)`, for how the run stands. `look` is to look at it anew. */
export function retry(api, path, look) {
  const post = posting(api, `${path}/retry`);
  const button = h("button", { class: "main" }, "Send it on");
  const told = h("div", { role: "status" });
  const send = async () => {
    button.disabled = true;
    try {
      await post({});
      put(told, h("p", { class: "fine" }, "It was sent on."));
    } catch (error) {
      put(told, trouble(error));
    }
    button.disabled = false;
    await look();
  };
  const asked = form(send, { class: "stuck", hidden: true },
    h("p", {}, "This run has ended its worker three times in a row without getting anywhere. "
      + "It goes on once somebody has looked and says so."),
    button);
  const renew = (run) => {
    asked.hidden = run.waiting_for?.for !== "operator";
  };
  return { element: h("div", {}, asked, told), renew };
}
