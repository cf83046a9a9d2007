//! Points and transformations of a page: the matrices of the PDF specification, section 8.3.

/// A point, or a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

impl Point {
    pub(super) fn minus(self, other: Self) -> Self {
        Self { x: self.x - other.x, y: self.y - other.y }
    }

    pub(super) fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y
    }

    pub(super) fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// The vector of length 1 in this direction. `None` if the vector has no direction.
    pub(super) fn direction(self) -> Option<Self> {
        let length = self.length();
        (length.is_finite() && length > 1e-9).then(|| Self { x: self.x / length, y: self.y / length })
    }

    /// This vector, turned left by a quarter turn.
    pub(super) fn turned_left(self) -> Self {
        Self { x: -self.y, y: self.x }
    }
}

/// A matrix `[a b c d e f]`. A point is a row vector, multiplied from the left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Matrix(pub(super) [f64; 6]);

impl Matrix {
    pub(super) const IDENTITY: Self = Self([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);

    pub(super) const fn translation(x: f64, y: f64) -> Self {
        Self([1.0, 0.0, 0.0, 1.0, x, y])
    }

    /// The transformation that applies `self` first and `other` second.
    pub(super) fn then(self, other: Self) -> Self {
        let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (self.0, other.0);
        Self([
            a * g + b * i,
            a * h + b * j,
            c * g + d * i,
            c * h + d * j,
            e * g + f * i + k,
            e * h + f * j + l,
        ])
    }

    /// The image of a vector.
    pub(super) fn vector(self, x: f64, y: f64) -> Point {
        let [a, b, c, d, ..] = self.0;
        Point { x: x * a + y * c, y: x * b + y * d }
    }

    /// The image of the origin.
    pub(super) fn origin(self) -> Point {
        Point { x: self.0[4], y: self.0[5] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_transformation_is_applied_first() {
        let scale = Matrix([2.0, 0.0, 0.0, 3.0, 0.0, 0.0]);
        let combined = Matrix::translation(1.0, 1.0).then(scale);
        assert_eq!(combined.origin(), Point { x: 2.0, y: 3.0 });
        assert_eq!(combined.vector(1.0, 1.0), Point { x: 2.0, y: 3.0 });
        let turned = Matrix([0.0, 1.0, -1.0, 0.0, 0.0, 0.0]);
        assert_eq!(turned.vector(1.0, 0.0), Point { x: 0.0, y: 1.0 });
    }
}
