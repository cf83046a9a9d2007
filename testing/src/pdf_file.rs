//! PDF files for tests, written object by object.

use std::fmt::Write as _;

/// A PDF file. Object 1 is the catalog, and object 2 the page tree. Adding another object returns its number.
#[derive(Clone, Debug)]
pub struct PdfFile {
    /// The objects, starting with the third.
    objects: Vec<Vec<u8>>,
    /// The numbers of the pages.
    pages: Vec<usize>,
    /// Further entries of the trailer.
    trailer: String,
}

/// A font that every reader knows, so files need not contain it.
pub const HELVETICA: &str = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>";

impl PdfFile {
    /// Creates a file without pages.
    #[must_use]
    pub const fn new() -> Self {
        Self { objects: Vec::new(), pages: Vec::new(), trailer: String::new() }
    }

    /// Creates a file with one page for each of these contents, which use the font `/F`.
    #[must_use]
    pub fn with_pages<T: AsRef<[u8]>>(font: &str, contents: impl IntoIterator<Item = T>) -> Self {
        let mut file = Self::new();
        let font = file.object(font);
        for content in contents {
            let content = file.stream("", content.as_ref());
            file.page(&format!("/Font << /F {font} 0 R >>"), content);
        }
        file
    }

    /// Adds an object, and returns its number.
    pub fn object(&mut self, text: impl AsRef<[u8]>) -> usize {
        self.objects.push(text.as_ref().to_vec());
        self.objects.len() + 2
    }

    /// The number that the next object will have, for objects that refer to each other.
    #[must_use]
    pub const fn next_number(&self) -> usize {
        self.objects.len() + 3
    }

    /// Adds a stream with these entries in addition to its length.
    pub fn stream(&mut self, entries: &str, bytes: &[u8]) -> usize {
        let mut text = format!("<< {entries} /Length {} >>\nstream\n", bytes.len()).into_bytes();
        text.extend(bytes);
        text.extend(b"\nendstream");
        self.object(text)
    }

    /// Adds a page with these resources and this content.
    pub fn page(&mut self, resources: &str, content: usize) -> usize {
        let page = self.object(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << {resources} >> /Contents {content} 0 R >>"
        ));
        self.pages.push(page);
        page
    }

    /// Adds an entry to the trailer, such as `/Info 7 0 R`.
    pub fn trailer(&mut self, entry: &str) {
        self.trailer.push_str(entry);
    }

    /// Returns the file as bytes, with a table of its objects.
    #[must_use]
    pub fn finish(&self) -> Vec<u8> {
        let mut file = b"%PDF-1.4\n".to_vec();
        let mut table = String::from("0000000000 65535 f \n");
        let objects = self.catalog_and_page_tree().into_iter().chain(self.objects.iter().cloned());
        for (index, object) in objects.enumerate() {
            writeln!(table, "{:010} 00000 n ", file.len()).expect("a text");
            file.extend(format!("{} 0 obj\n", index + 1).bytes());
            file.extend(object);
            file.extend(b"\nendobj\n");
        }
        let (start, size) = (file.len(), self.objects.len() + 3);
        let end = format!(
            "xref\n0 {size}\n{table}trailer\n<< /Size {size} /Root 1 0 R {} >>\nstartxref\n{start}\n%%EOF\n",
            self.trailer
        );
        file.extend(end.bytes());
        file
    }

    /// Returns the file in the form of PDF 1.5: a stream of objects, which `pack` may compress, and a stream
    /// with the table of objects.
    ///
    /// # Panics
    /// If the file has more than 255 objects, or 4 GiB.
    #[must_use]
    pub fn finish_packed(&self, filter: &str, pack: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let mut file = b"%PDF-1.5\n".to_vec();
        let objects: Vec<Vec<u8>> =
            self.catalog_and_page_tree().into_iter().chain(self.objects.iter().cloned()).collect();
        let packed_number = objects.len() + 1;
        let (mut index, mut packed) = (String::new(), Vec::new());
        // One row per object: its kind, its offset in the file or the number of its stream,
        // and its index there.
        let mut rows: Vec<(u8, usize, u8)> = vec![(0, 0, 0)];
        let mut count = 0_u8;
        for (number, object) in (1..).zip(&objects) {
            if object.ends_with(b"endstream") {
                rows.push((1, file.len(), 0));
                file.extend([format!("{number} 0 obj\n").as_bytes(), object, b"\nendobj\n"].concat());
            } else {
                rows.push((2, packed_number, count));
                count += 1;
                write!(index, "{number} {} ", packed.len()).expect("a text");
                packed.extend([object, &b" "[..]].concat());
            }
        }
        rows.push((1, file.len(), 0));
        let bytes = pack(&[index.as_bytes(), &packed].concat());
        let head =
            format!("/Type /ObjStm /N {count} /First {} {filter} /Length {}", index.len(), bytes.len());
        file.extend(format!("{packed_number} 0 obj\n<< {head} >>\nstream\n").bytes());
        file.extend([&bytes, &b"\nendstream\nendobj\n"[..]].concat());
        let start = file.len();
        rows.push((1, start, 0));
        let rows: Vec<u8> = (rows.iter())
            .flat_map(|(kind, offset, index)| {
                let offset = u32::try_from(*offset).expect("a small file").to_be_bytes();
                [&[*kind][..], &offset, &[*index]].concat()
            })
            .collect();
        let (number, size) = (packed_number + 1, packed_number + 2);
        let head = format!(
            "/Type /XRef /Size {size} /W [1 4 1] /Root 1 0 R {} /Length {}",
            self.trailer,
            rows.len()
        );
        file.extend(format!("{number} 0 obj\n<< {head} >>\nstream\n").bytes());
        file.extend(rows);
        file.extend(format!("\nendstream\nendobj\nstartxref\n{start}\n%%EOF\n").bytes());
        file
    }

    fn catalog_and_page_tree(&self) -> [Vec<u8>; 2] {
        let kids: Vec<String> = self.pages.iter().map(|page| format!("{page} 0 R")).collect();
        let tree = format!("<< /Type /Pages /Count {} /Kids [{}] >>", self.pages.len(), kids.join(" "));
        [b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(), tree.into_bytes()]
    }
}

impl Default for PdfFile {
    fn default() -> Self {
        Self::new()
    }
}
