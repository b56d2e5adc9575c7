// Asks for what has changed each second, as long as somebody looks, and puts it in its place.
(() => {
  "use strict";
  const PERIOD_MS = 1000;
  const shown = {};
  let told = "";
  const silence = document.getElementById("silence");

  function put(parts) {
    for (const [id, text] of Object.entries(parts)) {
      if (shown[id] === text) continue;
      shown[id] = text;
      const place = document.getElementById(id);
      const log = place.querySelector("pre");
      const from_end = log ? log.scrollHeight - log.scrollTop : 0;
      const is_at_end = !log || from_end - log.clientHeight < 4;
      place.innerHTML = text; // escaped where it was made; the page's policy lets nothing in it run
      place.hidden = text === "";
      const now = place.querySelector("pre");
      if (now) now.scrollTop = is_at_end ? now.scrollHeight : now.scrollHeight - from_end;
    }
    document.documentElement.dataset.drawn = "yes";
  }

  // Returns why there is nothing new; "": there is.
  async function ask() {
    const answer = await fetch("parts.json", { cache: "no-store" });
    if (answer.status === 500) return `the command goes on, and could not make this page (${await answer.text()})`;
    if (!answer.ok) throw new Error(String(answer.status));
    put(await answer.json());
    return "";
  }

  function tell(why) {
    if (why === told) return;
    told = why;
    silence.hidden = why === "";
    silence.textContent = `No answer since ${new Date().toLocaleTimeString()}: ${why}. This is what was heard last.`;
  }

  async function look() {
    if (!document.hidden) {
      try {
        tell(await ask());
      } catch {
        tell("the command has ended, or the way to it is cut");
      }
    }
    setTimeout(look, PERIOD_MS);
  }

  look();
})();
