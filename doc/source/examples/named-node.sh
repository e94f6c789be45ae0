# Add the filter to the file of Nova's API, unless it is there.
file=${1:-/etc/nova/api-paste.ini}
grep -q '^\[filter:named_node\]' "$file" || cat >>"$file" <<'END'

[filter:named_node]
paste.filter_factory = nova.virt.ironic_reservations.named_node:NamedNode.factory
END
sed -i '/^keystone =/{/ named_node /!s/ osapi_compute_app_v21$/ named_node&/}' "$file"
