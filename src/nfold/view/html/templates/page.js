// Draws every chart into its place, in the colours that the style sheet gives to text and lines.
(() => {
  "use strict";
  Bokeh.set_log_level("warn");
  const { figure, show } = Bokeh.Plotting;
  const FONT = { axis_label_text_font_size: "12px", major_label_text_font_size: "12px", axis_label_text_font_style: "normal" };
  const drawn = [];

  // Frames

  function frame({ height, x_label = "", y_label = "", tools = "", ...more }) {
    const made = figure({
      height, sizing_mode: "stretch_width", min_width: 200, tools, toolbar_location: tools ? "above" : null,
      x_axis_label: x_label || null, y_axis_label: y_label || null,
      background_fill_color: null, border_fill_color: null, outline_line_color: null, min_border_right: 12, ...more,
    });
    made.toolbar.logo = null;
    for (const axis of [...made.xaxes, ...made.yaxes]) axis.setv({ ...FONT, minor_tick_line_color: null });
    drawn.push(made);
    return made;
  }

  function hover(made, renderer, tooltips) {
    made.add_tools(new Bokeh.HoverTool({ renderers: [renderer], tooltips, visible: false, point_policy: "follow_mouse" }));
  }

  function label(axis, ticks, texts) {
    axis.ticker = new Bokeh.FixedTicker({ ticks });
    axis.major_label_overrides = new Map(ticks.map((tick, index) => [tick, texts[index]]));
  }

  const source = (data) => new Bokeh.ColumnDataSource({ data });
  const column = (field) => ({ field });

  // Kinds of chart

  function timeline({ rows, bottom, window_ms, end_ms, activities }, height) {
    const x_range = new Bokeh.Range1d({ start: 0, end: window_ms });
    const y_range = new Bokeh.Range1d({ start: bottom, end: 0.6 });
    const main = frame({ height, x_range, y_range, tools: "xpan,xbox_zoom,xzoom_in,xzoom_out,xwheel_zoom,reset" });
    main.toolbar.active_scroll = null;
    main.toolbar.active_drag = null;
    const strip = frame({ height: 92, x_label: "ms", x_range: new Bokeh.Range1d({ start: 0, end: end_ms }), y_range });
    for (const { color, overlaps, ...columns } of activities) {
      const place = {
        y: column("row"), left: column("begin"), right: column("end"), source: source(columns),
        height: 0.86, fill_color: color, line_color: null, fill_alpha: overlaps ? 0.75 : 1,
      };
      strip.hbar(place);
      const tips = [["", "@what"], ["step", "@step"], ["from", "@begin{0.000} ms"], ["to", "@end{0.000} ms"]];
      if ("payload" in columns) tips.push(["payload", "@payload"]);
      hover(main, main.hbar(place), tips);
    }
    for (const axis of main.yaxes) {
      label(axis, rows.map((row) => row.y), rows.map((row) => row.label));
      axis.setv({ axis_line_color: null, major_tick_line_color: null });
    }
    for (const grid of [...main.ygrids, ...strip.ygrids]) grid.visible = false;
    for (const axis of strip.yaxes) axis.setv({ major_label_text_color: null, major_tick_line_color: null, visible: false });
    const tool = new Bokeh.RangeTool({ x_range });
    tool.overlay.setv({ fill_color: "#8b95a3", fill_alpha: 0.3, line_color: "#8b95a3" });
    strip.add_tools(tool);
    return [main, strip];
  }

  function grid({ labels, label_every, owners, chunks: numbers, colors }, height) {
    const rows = owners.length, chunks = numbers.length;
    const made = frame({
      height, x_label: "chunk",
      x_range: new Bokeh.Range1d({ start: -0.5, end: chunks - 0.5 }),
      y_range: new Bokeh.Range1d({ start: rows - 0.5, end: -0.5 }),
    });
    const cells = { chunk: [], number: [], row: [], rank: [], color: [], operator: [] };
    owners.forEach((ranks, row) => ranks.forEach((rank, chunk) => {
      cells.chunk.push(chunk);
      cells.number.push(numbers[chunk]);
      cells.row.push(row);
      cells.rank.push(rank);
      cells.color.push(colors[rank]);
      cells.operator.push(labels[row]);
    }));
    const data = source(cells), x = column("chunk"), y = column("row"), gap = Math.max(rows, chunks) > 60 ? 1 : 0.94;
    const marks = made.rect({ x, y, width: gap, height: gap, fill_color: column("color"), line_color: null, source: data });
    hover(made, marks, [["operator", "@operator"], ["chunk", "@number"], ["rank", "@rank"]]);
    if (cells.rank.length <= 400 && chunks <= 32) {
      made.text({
        x, y, text: { field: "rank" }, text_color: "white", text_align: "center", text_baseline: "middle",
        text_font_size: "12px", source: source({ ...cells, rank: cells.rank.map(String) }),
      });
    }
    const shown = labels.map((_, index) => index).filter((index) => index % label_every === 0);
    for (const axis of made.yaxes) {
      label(axis, shown, shown.map((index) => labels[index]));
      axis.setv({ axis_line_color: null, major_tick_line_color: null });
    }
    const every = Math.ceil(chunks / 12), ticks = numbers.map((_, chunk) => chunk).filter((chunk) => chunk % every === 0);
    for (const axis of made.xaxes) label(axis, ticks, ticks.map((chunk) => String(numbers[chunk])));
    for (const lines of [...made.xgrids, ...made.ygrids]) lines.visible = false;
    return [made];
  }

  function stack({ names, labels, parts, x_label }, height) {
    const y_range = new Bokeh.Range1d({ start: names.length - 0.5, end: -0.5 });
    const made = frame({ height, x_label, y_range });
    const rows = names.map((_, row) => row), ends = names.map(() => 0);
    for (const { what, color, values } of parts) {
      const left = [...ends];
      values.forEach((value, row) => { ends[row] += value; });
      const marks = made.hbar({
        y: column("row"), left: column("left"), right: column("right"), height: 0.7, fill_color: color, line_color: null,
        source: source({ row: rows, name: names, left, right: [...ends], value: values }),
      });
      hover(made, marks, [["", "@name"], [what, "@value{0.000}"]]);
    }
    made.x_range.start = 0;
    for (const axis of made.yaxes) {
      label(axis, rows, labels);
      axis.setv({ axis_line_color: null, major_tick_line_color: null });
    }
    for (const lines of made.ygrids) lines.visible = false;
    return [made];
  }

  function curves({ x_label, y_label, log, curves, marks }, height) {
    const type = log ? "log" : "linear";
    const made = frame({
      height, x_label, y_label, tools: "pan,box_zoom,zoom_in,zoom_out,reset", x_axis_type: type, y_axis_type: type,
    });
    made.toolbar.active_drag = null;
    if (log) {
      for (const axis of [...made.xaxes, ...made.yaxes]) axis.formatter = new Bokeh.NumeralTickFormatter({ format: "0,0.[00]" });
    }
    for (const { what, color, x, y, dash, width, alpha, dots } of curves) {
      const place = { x: column("x"), y: column("y"), source: source({ x, y }) };
      let marks = null;
      if (width > 0) marks = made.line({ ...place, line_color: color, line_dash: dash, line_width: width, line_alpha: alpha });
      if (dots) marks = made.scatter({ ...place, size: 9, fill_color: color, line_color: null });
      const digits = y.every(value => Math.abs(value) < 0.01) ? "@y" : "@y{0.[0000]}";  // bare: with an exponent
      if (alpha === 1) hover(made, marks, [["", what.replaceAll("@", "@{")], [x_label, "@x{0,0.[00]}"], [y_label, digits]]);
    }
    if (marks.x.length > 0) {
      const look = { line_color: "#8b95a3", line_dash: "dashed", line_width: 2 };
      hover(made, made.vspan(column("x"), { source: source(marks), ...look }), [["", "@what"]]);
    }
    return [made];
  }

  function columns({ x, y, color, x_label, y_label }, height) {
    const made = frame({ height, x_label, y_label });
    const data = source({ x, y });
    const marks = made.vbar({ x: column("x"), top: column("y"), width: 0.8, fill_color: color, line_color: null, source: data });
    hover(made, marks, [[x_label, "@x"], [y_label, "@y{0,0}"]]);
    made.y_range.start = 0;
    for (const lines of made.xgrids) lines.visible = false;
    const every = Math.ceil(x.length / 12);
    for (const axis of made.xaxes) axis.ticker = new Bokeh.FixedTicker({ ticks: x.filter((_, index) => index % every === 0) });
    return [made];
  }

  const kinds = { timeline, grid, stack, curves, columns };

  // Light and dark

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function paint(made) {
    const text = color("--text"), line = color("--line"), faint = color("--faint");
    for (const axis of [...made.xaxes, ...made.yaxes]) {
      axis.setv({ axis_label_text_color: text, major_label_text_color: text });
      if (axis.axis_line_color !== null) axis.setv({ axis_line_color: line, major_tick_line_color: line });
    }
    for (const grid of [...made.xgrids, ...made.ygrids]) grid.grid_line_color = faint;
  }

  async function draw() {
    for (const script of document.querySelectorAll("script.chart-data")) {
      const { key, kind, height, data } = JSON.parse(script.textContent);
      const place = document.getElementById(`chart-${key}`);
      const figures = kinds[kind](data, height);
      figures.forEach(paint);
      await show(figures, place);
    }
    document.documentElement.dataset.drawn = String(drawn.length);
  }

  const darkness = matchMedia("(prefers-color-scheme: dark)");
  darkness.addEventListener("change", () => drawn.forEach(paint));
  draw();
})();
