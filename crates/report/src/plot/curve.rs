//! Lines from data: staircases, distributions, thinning, clipping.

/// A point of a picture, in pixels.
pub(super) type Pixel = (f64, f64);

/// The corners of a staircase through `points`.
pub(super) fn steps(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        if let Some((_, before)) = corners.last().copied() {
            corners.push((x, before));
        }
        corners.push((x, y));
    }
    corners
}

/// The empirical distribution of `samples`, each with how often it occurs, as a staircase, or its
/// complement. NaN samples are ignored.
pub(super) fn distribution(samples: &[(f64, u64)], complement: bool) -> Vec<(f64, f64)> {
    let mut sorted: Vec<(f64, u64)> =
        samples.iter().copied().filter(|(sample, _)| sample.is_finite()).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: u64 = sorted.iter().map(|(_, count)| count).sum();
    let share = |upto: u64| ratio(if complement { all - upto } else { upto }, all);
    let mut points: Vec<(f64, f64)> =
        sorted.first().map(|(first, _)| (*first, share(0))).into_iter().collect();
    let mut upto = 0;
    for (index, (sample, count)) in sorted.iter().enumerate() {
        upto += count;
        // Equal samples are one step.
        if sorted.get(index + 1).is_none_or(|(next, _)| next.total_cmp(sample).is_ne()) {
            points.push((*sample, share(upto)));
        }
    }
    steps(points)
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 samples")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Keeps only the first, the lowest, the highest and the last point in each column of pixels. The
/// others are not visible, and a trace of a million points makes a file of some hundred kilobytes.
pub(super) fn thin(points: &[Pixel]) -> Vec<Pixel> {
    let mut thinned: Vec<Pixel> = Vec::new();
    for column in points.chunk_by(|a, b| a.0.floor().total_cmp(&b.0.floor()).is_eq()) {
        if column.len() <= 4 {
            thinned.extend(column);
            continue;
        }
        let extreme = |better: fn(f64, f64) -> bool| {
            (0..column.len())
                .fold(0, |best, at| if better(column[at].1, column[best].1) { at } else { best })
        };
        let mut kept = [0, extreme(|a, b| a < b), extreme(|a, b| a > b), column.len() - 1];
        kept.sort_unstable();
        thinned.extend(kept.map(|at| column[at]));
    }
    thinned.dedup();
    thinned
}

/// The pieces of the line through `points` inside the rectangle from `(0, 0)` to `size`.
pub(super) fn clip(points: &[Pixel], size: Pixel) -> Vec<Vec<Pixel>> {
    let mut pieces: Vec<Vec<Pixel>> = Vec::new();
    for pair in points.windows(2) {
        let Some((from, to)) = clip_segment(pair[0], pair[1], size) else { continue };
        match pieces.last_mut() {
            Some(piece) if piece.last() == Some(&from) => piece.push(to),
            _ => pieces.push(vec![from, to]),
        }
    }
    pieces
}

/// Liang and Barsky: the segment's parameter between the four edges.
fn clip_segment(a: Pixel, b: Pixel, size: Pixel) -> Option<(Pixel, Pixel)> {
    let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    for (towards, room) in [(-dx, a.0), (dx, size.0 - a.0), (-dy, a.1), (dy, size.1 - a.1)] {
        if towards == 0.0 {
            if room < 0.0 {
                return None;
            }
        } else if towards < 0.0 {
            enter = enter.max(room / towards);
        } else {
            leave = leave.min(room / towards);
        }
    }
    let at = |t: f64| (a.0 + t * dx, a.1 + t * dy);
    // Uncut ends are returned exactly, so that pieces join.
    (enter <= leave)
        .then(|| (if enter > 0.0 { at(enter) } else { a }, if leave < 1.0 { at(leave) } else { b }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_steps_at_its_samples() {
        let cdf = distribution(&[(2.0, 1), (1.0, 1), (f64::NAN, 3), (2.0, 1), (4.0, 1)], false);
        assert_eq!(
            cdf,
            [
                (1.0, 0.0),
                (1.0, 0.0),
                (1.0, 0.25),
                (2.0, 0.25),
                (2.0, 0.75),
                (4.0, 0.75),
                (4.0, 1.0)
            ]
        );
        let counted = distribution(&[(4.0, 2), (2.0, 4), (1.0, 2)], false);
        assert_eq!(counted, cdf, "only proportions count");
        let tail = distribution(&[(2.0, 1), (1.0, 1)], true);
        assert_eq!(tail, [(1.0, 1.0), (1.0, 1.0), (1.0, 0.5), (2.0, 0.5), (2.0, 0.0)]);
        assert_eq!(distribution(&[], false), []);
    }

    #[test]
    fn thinning_keeps_the_peaks() {
        let mut points: Vec<Pixel> = (0..1000).map(|n| (f64::from(n) / 100.0, 50.0)).collect();
        points[555].1 = 99.0;
        points[556].1 = 1.0;
        let thinned = thin(&points);
        assert!(thinned.len() <= 40);
        assert!(thinned.contains(&points[555]) && thinned.contains(&points[556]));
    }

    #[test]
    fn lines_end_at_the_edge() {
        let pieces =
            clip(&[(-10.0, 5.0), (5.0, 5.0), (5.0, 20.0), (8.0, 20.0), (8.0, 0.0)], (10.0, 10.0));
        assert_eq!(
            pieces,
            [vec![(0.0, 5.0), (5.0, 5.0), (5.0, 10.0)], vec![(8.0, 10.0), (8.0, 0.0)]]
        );
    }
}
