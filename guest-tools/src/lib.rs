//! The core tools, one per file, written with `#[tool]` like the tools of any author.
//!
//! Portcullis embeds the module of `src/bin/core_tools.rs`. The other programs in `src/bin` are further modules, and
//! the hostile guests of the tests. Each hostile guest has one misbehaviour, and is never embedded.
//!
//! The tools do not know the policy: they open the requested paths, and the sandbox decides.
#![forbid(unsafe_code)]

mod file_delete;
mod file_edit;
mod file_list;
mod file_read;
mod file_search;
mod file_write;
mod limits;
mod pdf_text;
mod shown_name;
mod vault_copyto;
mod web_fetch;
mod web_fetch_pdf;
mod web_page;
mod web_robots;
mod web_search;

pub use file_delete::{FileDelete, file_delete, file_delete_tool};
pub use file_edit::{FileEdit, file_edit, file_edit_tool};
pub use file_list::{FileList, file_list, file_list_tool};
pub use file_read::{FileRead, file_read, file_read_tool};
pub use file_search::{FileSearch, file_search, file_search_tool};
pub use file_write::{FileWrite, file_write, file_write_tool};
pub use pdf_text::{PdfError, PdfText, read_pdf};
pub use vault_copyto::{
    VaultCopytoRead, VaultCopytoWrite, vault_copyto_read, vault_copyto_read_tool, vault_copyto_write,
    vault_copyto_write_tool,
};
pub use web_fetch::{WebFetchRead, web_fetch_read, web_fetch_read_tool};
pub use web_fetch_pdf::{WebFetchReadPdf, web_fetch_read_pdf, web_fetch_read_pdf_tool};
pub use web_page::{PageContent, PageEffort, PageFormat, PagePart, PageSource, WebPage, read_page};
pub use web_robots::{WebFetchRobots, web_fetch_robots, web_fetch_robots_tool};
pub use web_search::{WebSearchRead, web_search_read, web_search_read_tool};

#[doc(hidden)]
pub use self::{
    file_delete::{__tool_declaration_file_delete, __tool_function_decl_file_delete},
    file_edit::{__tool_declaration_file_edit, __tool_function_decl_file_edit},
    file_list::{__tool_declaration_file_list, __tool_function_decl_file_list},
    file_read::{__tool_declaration_file_read, __tool_function_decl_file_read},
    file_search::{__tool_declaration_file_search, __tool_function_decl_file_search},
    file_write::{__tool_declaration_file_write, __tool_function_decl_file_write},
    vault_copyto::{
        __tool_declaration_vault_copyto_read, __tool_declaration_vault_copyto_write,
        __tool_function_decl_vault_copyto_read, __tool_function_decl_vault_copyto_write,
    },
    web_fetch::{__tool_declaration_web_fetch_read, __tool_function_decl_web_fetch_read},
    web_fetch_pdf::{__tool_declaration_web_fetch_read_pdf, __tool_function_decl_web_fetch_read_pdf},
    web_robots::{__tool_declaration_web_fetch_robots, __tool_function_decl_web_fetch_robots},
    web_search::{__tool_declaration_web_search_read, __tool_function_decl_web_search_read},
};
