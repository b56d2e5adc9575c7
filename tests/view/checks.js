// What a test asks of a page that has drawn itself.
globalThis.checks = (() => {
  "use strict";
  const LEAST_CONTRAST = 4.5; // WCAG 2, level AA, for text

  const canvasesIn = (root) => [...root.querySelectorAll("*")].flatMap((element) => [
    ...(element instanceof HTMLCanvasElement && element.width ? [element] : []),
    ...(element.shadowRoot ? canvasesIn(element.shadowRoot) : []),
  ]);

  const probe = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });

  function rgba(text) {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = text;
    probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data];
  }

  function luminance(color) {
    const [r, g, b] = color.map((value) => value / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function contrast(one, other) {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }

  function behind(element) {
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  }

  // Of a copy: the browser warns of pages that read their own canvases again and again.
  function pixelsOf(canvas) {
    const { width, height } = canvas;
    const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    return copy.getImageData(0, 0, width, height).data;
  }

  function pixelsLike(pictures, [r, g, b]) {
    let found = 0;
    for (const data of pictures) {
      for (let at = 0; at < data.length; at += 4) {
        const distance = Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) + Math.abs(data[at + 2] - b);
        if (data[at + 3] > 60 && distance < 12) found += 1;
      }
    }
    return found;
  }

  const charts = () => [...document.querySelectorAll(".chart")].map((place) => place.id);

  // For each chart: how many pixels have each of its legend's colours.
  function marks() {
    const counts = {};
    for (const place of document.querySelectorAll(".chart")) {
      const pictures = canvasesIn(place).map(pixelsOf);
      const wanted = [...place.parentElement.querySelectorAll("li")].map(
        (item) => [item.textContent.trim(), rgba(getComputedStyle(item.firstElementChild).backgroundColor)],
      );
      if (!wanted.length) wanted.push(["the only marks", rgba("#4c8bd6")]);
      counts[place.id] = Object.fromEntries(wanted.map(([words, color]) => [words, pixelsLike(pictures, color)]));
    }
    return counts;
  }

  function tooWide() {
    const boxes = [...document.querySelectorAll("main, header, section, p, h1, h2, li, .tile, .chart, .chart > *")];
    return boxes
      .filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5)
      .map((element) => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`);
  }

  function faintText() {
    const faint = [];
    const judge = (words, color, background) => {
      const ratio = contrast(color, background);
      if (ratio < LEAST_CONTRAST) faint.push([words.trim().slice(0, 40), ratio]);
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      const seen = element.getClientRects().length && !["SCRIPT", "STYLE"].includes(element.tagName);
      if (seen && node.textContent.trim()) judge(node.textContent, rgba(getComputedStyle(element).color), behind(element));
    }
    const card = rgba(getComputedStyle(document.documentElement).getPropertyValue("--card"));
    for (const figure of (globalThis.Bokeh?.documents ?? []).flatMap((each) => each.roots())) {
      for (const axis of [...figure.xaxes, ...figure.yaxes].filter((each) => each.visible)) {
        judge(`ticks of ${axis.axis_label}`, rgba(axis.major_label_text_color), card);
        judge(`label ${axis.axis_label}`, rgba(axis.axis_label_text_color), card);
      }
    }
    return faint;
  }

  const timeline = () => Bokeh.documents[0].roots();

  function timelineWindow() {
    const { start, end } = timeline()[0].x_range;
    return [start, end];
  }

  // Where the strip below the timeline is, once it has been scrolled into view.
  function strip() {
    const place = document.querySelectorAll("#chart-timeline .bk-Figure")[1];
    place.scrollIntoView({ block: "center" });
    const { left, top, width, height } = place.getBoundingClientRect();
    return [left, top, width, height];
  }

  async function frames(count) {
    for (let done = 0; done < count; done += 1) await new Promise(requestAnimationFrame);
  }

  // Waits until an expression of the page holds.
  async function until(holds) {
    while (!holds()) await new Promise((done) => setTimeout(done, 20));
    return true;
  }

  return { until, charts, marks, tooWide, faintText, timelineWindow, strip, frames };
})();
void 0;
