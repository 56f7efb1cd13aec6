//! The figures as one SVG file that needs nothing else: rates as bars, latencies as curves over their quantiles.

use anyhow::anyhow;
use plotters::backend::SVGBackend;
use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::{Shift, combinators::IntoLogRange},
    drawing::{DrawingArea, IntoDrawingArea},
    element::{PathElement, Rectangle},
    series::LineSeries,
    style::{
        BLACK, Color, IntoTextStyle, RGBColor, TextStyle, WHITE,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::report::{Report, Summary, thousands};

/// Points of a quantile, or what stands for it on the axis, and milliseconds.
type Curve = Vec<(f64, f64)>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 1_000;
const HEAD: u32 = 64;
const BAR: u32 = 30;
const CURVES: u32 = 460;
/// Where bars begin: names stand left of it.
const BARS_LEFT: i32 = 260;
/// Where the longest ends: numbers stand right of it.
const BARS_RIGHT: i32 = 880;
/// 99.99 % is as far as the quantiles go.
const NINES_MAX: f64 = 10_000.0;
/// Told apart by people who see colours differently too.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 240),
    RGBColor(110, 110, 110),
];

/// Draws the report.
///
/// # Errors
/// When there is nothing to draw.
pub(super) fn svg(report: &Report) -> anyhow::Result<String> {
    let summaries = report.summaries();
    let rates: Vec<(usize, &Summary, f64)> = summaries
        .iter()
        .enumerate()
        .filter_map(|(at, summary)| Some((at, summary, summary.per_second?)))
        .collect();
    anyhow::ensure!(!summaries.is_empty(), "nothing was measured, so there is nothing to draw");
    let bars = HEAD + BAR * u32::try_from(rates.len())?;
    let mut text = String::new();
    {
        let size = (WIDTH, bars + CURVES);
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let (above, below) = root.split_vertically(bars);
        draw_bars(&above, report, &rates)?;
        draw_curves(&below, &summaries)?;
        root.present().map_err(drawing)?;
    }
    Ok(text)
}

fn draw_bars(area: &Area<'_>, report: &Report, rates: &[(usize, &Summary, f64)]) -> anyhow::Result<()> {
    let heading = style(area, 20, HPos::Left);
    let plain = style(area, 14, HPos::Left);
    let names = style(area, 14, HPos::Right);
    area.draw_text("aivideo bench: per second", &heading, (20, 20)).map_err(drawing)?;
    area.draw_text(&report.place(), &plain, (20, 44)).map_err(drawing)?;
    let most = rates.iter().map(|(_, _, rate)| *rate).fold(1.0, f64::max);
    let mut top = i32::try_from(HEAD)?;
    let height = i32::try_from(BAR)?;
    for (at, summary, rate) in rates {
        let middle = top + height / 2;
        area.draw_text(&name(summary), &names, (BARS_LEFT - 10, middle)).map_err(drawing)?;
        #[expect(clippy::cast_possible_truncation, reason = "a share of some hundred pixels")]
        let right = BARS_LEFT + (f64::from(BARS_RIGHT - BARS_LEFT) * rate / most).round() as i32;
        let bar = Rectangle::new([(BARS_LEFT, top + 4), (right, top + height - 4)], colour(*at).filled());
        area.draw(&bar).map_err(drawing)?;
        area.draw_text(&thousands(*rate), &plain, (right + 8, middle)).map_err(drawing)?;
        top += height;
    }
    Ok(())
}

fn draw_curves(area: &Area<'_>, summaries: &[Summary]) -> anyhow::Result<()> {
    let curves: Vec<(usize, &Summary, Curve)> = summaries
        .iter()
        .enumerate()
        .map(|(at, summary)| (at, summary, nines(&summary.latency.curve())))
        .filter(|(_, _, curve)| !curve.is_empty())
        .collect();
    let most = curves.iter().flat_map(|(_, _, curve)| curve).map(|(_, ms)| *ms).fold(1.0, f64::max);
    let heading = style(area, 20, HPos::Left);
    area.draw_text("latency in milliseconds, by quantile", &heading, (20, 24)).map_err(drawing)?;
    let mut chart = ChartBuilder::on(area)
        .margin(20)
        .margin_top(48)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d((1.0..NINES_MAX).log_scale(), (0.1..most * 2.0).log_scale())
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .x_labels(5)
        .x_label_formatter(&|nines| percent(*nines))
        .y_label_formatter(&|ms| format!("{ms}"))
        .label_style(style(area, 13, HPos::Left).font)
        .light_line_style(WHITE)
        .draw()
        .map_err(drawing)?;
    for (at, summary, curve) in curves {
        let colour = colour(at);
        chart
            .draw_series(LineSeries::new(curve, colour.stroke_width(2)))
            .map_err(drawing)?
            .label(name(summary))
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(style(area, 13, HPos::Left).font)
        .draw()
        .map_err(drawing)?;
    Ok(())
}

/// Quantiles as their distance from one, so that 90, 99 and 99.9 % stand equally far apart.
fn nines(curve: &[(f64, f64)]) -> Curve {
    let axis = |quantile: f64| (1.0 / (1.0 - quantile).max(1.0 / NINES_MAX)).clamp(1.0, NINES_MAX);
    // A logarithm has no zero; a tenth of a millisecond is the axis's lower end.
    curve.iter().map(|(quantile, ms)| (axis(*quantile), ms.max(0.1))).collect()
}

fn percent(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 1.0 / nines);
    format!("{}%", (percent * 100.0).round() / 100.0)
}

fn name(summary: &Summary) -> String {
    format!("{}, {}", summary.figure, summary.variant)
}

fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

fn style<'a>(area: &Area<'_>, size: u32, side: HPos) -> TextStyle<'a> {
    ("sans-serif", size).into_text_style(area).pos(Pos::new(side, VPos::Center))
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot could not be drawn: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::report::tests::example;

    #[tokio::test]
    async fn the_file_is_whole_and_stands_alone() {
        let text = svg(&example().await).unwrap();
        let document = roxmltree::Document::parse(&text).expect("well-formed");
        let root = document.root_element();
        assert_eq!(
            (root.tag_name().name(), root.tag_name().namespace()),
            ("svg", Some("http://www.w3.org/2000/svg"))
        );
        let texts: Vec<String> = document
            .descendants()
            .filter(|node| {
                node.has_tag_name("text") || node.has_tag_name(("http://www.w3.org/2000/svg", "text"))
            })
            .filter_map(|node| node.text().map(|text| text.trim().to_owned()))
            .collect();
        for wanted in ["submit, scheduler on", "start-latency, 64 in flight <&>", "1,500", "99%"] {
            assert!(texts.iter().any(|text| text == wanted), "{wanted} is not in {texts:?}");
        }
        let foreign = document.descendants().flat_map(|node| node.attributes()).any(|a| a.name() == "href");
        assert!(!foreign && !text.contains("<script"), "it refers to something");
        let bars = document.descendants().filter(|node| node.attribute("fill") == Some("#0072B2")).count();
        assert!(bars >= 1, "no bar was drawn");
    }

    #[tokio::test]
    async fn nothing_measured_draws_nothing() {
        let mut report = example().await;
        report.records.clear();
        assert!(svg(&report).is_err());
    }

    #[test]
    fn quantiles_stand_by_their_nines() {
        assert_eq!([1.0, 10.0, 100.0, 1_000.0].map(percent), ["0%", "90%", "99%", "99.9%"]);
        let points = nines(&[(0.0, 0.0), (0.9, 5.0), (1.0, 7.0)]);
        assert_eq!((points[0], points[2]), ((1.0, 0.1), (NINES_MAX, 7.0)));
        assert!((points[1].0 - 10.0).abs() < 1e-6, "{points:?}");
    }
}
